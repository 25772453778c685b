// Four outputs at a time, each in two sums of 16 lanes, so that loads and additions overlap.
#include "lib/nn/cpu/row_kernels.h"

#include <ATen/ops/empty.h>

#include <cstdint>

#include "core/base/widest.h"
#include "lib/nn/cpu/cpu_rows.h"

namespace heddle::model {
namespace {

constexpr int64_t kAtOnce = 4;

// to[i] = the product of row i of the weight [count, width] with x, and plus[i] where there is one.
HEDDLE_INLINE void multiply_rows(const float* weight, const float* x, const float* plus, float* to,
                                 int64_t count, int64_t width) {
  const int64_t whole = width - width % kFloats;
  for (int64_t row = 0; row < count; row += kAtOnce) {
    const int64_t last = std::min(kAtOnce, count - row) - 1;
    const float* const w0 = weight + row * width;
    const float* const w1 = w0 + std::min<int64_t>(1, last) * width;
    const float* const w2 = w0 + std::min<int64_t>(2, last) * width;
    const float* const w3 = w0 + last * width;
    Floats s0 = {}, s1 = {}, s2 = {}, s3 = {};
    for (int64_t i = 0; i < whole; i += kFloats) {
      const Floats v = floats_at(x + i);
      s0 += floats_at(w0 + i) * v;
      s1 += floats_at(w1 + i) * v;
      s2 += floats_at(w2 + i) * v;
      s3 += floats_at(w3 + i) * v;
    }
    float sums[kAtOnce] = {total_of(s0), total_of(s1), total_of(s2), total_of(s3)};
    for (int64_t i = whole; i < width; ++i) {
      sums[0] += w0[i] * x[i];
      sums[1] += w1[i] * x[i];
      sums[2] += w2[i] * x[i];
      sums[3] += w3[i] * x[i];
    }
    for (int64_t r = 0; r < last; ++r) to[row + r] = sums[r] + (plus != nullptr ? plus[row + r] : 0.0f);
    to[row + last] = sums[kAtOnce - 1] + (plus != nullptr ? plus[row + last] : 0.0f);
  }
}

}  // namespace

bool is_row_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& plus) {
  const auto has_floats = [](const at::Tensor& tensor) {
    return tensor.is_cpu() && tensor.scalar_type() == at::kFloat;
  };
  const int64_t width = b.size(0);
  return a.size(0) == 1 && a.size(1) == width && has_floats(a) && has_floats(b) && a.stride(1) == 1 &&
         b.stride(0) == 1 && b.stride(1) == width &&
         (!plus.defined() || (has_floats(plus) && plus.numel() == b.size(1)));
}

at::Tensor multiply_row(const at::Tensor& a, const at::Tensor& b, const at::Tensor& plus) {
  const int64_t width = b.size(0);
  at::Tensor out = at::empty({1, b.size(1)}, a.options());
  const at::Tensor added = plus.defined() ? plus.contiguous() : at::Tensor();
  const float *weight = b.const_data_ptr<float>(), *x = a.const_data_ptr<float>();
  const float* more = added.defined() ? added.const_data_ptr<float>() : nullptr;
  float* to = out.mutable_data_ptr<float>();
  over_rows(b.size(1), width, [=](int64_t begin, int64_t end) {
    run_widest<multiply_rows>(weight + begin * width, x, more != nullptr ? more + begin : nullptr, to + begin,
                              end - begin, width);
  });
  return out;
}

}  // namespace heddle::model
