// The rotation of heads on the CPU, in place.
#include "lib/nn/cpu/row_kernels.h"

#include "lib/nn/cpu/cpu_rows.h"

namespace heddle::model {
namespace {

// Pairs of numbers of a head, `step` apart from pair to pair, in place.
template <int64_t step, class Number>
void turn_pairs(Number* __restrict low, Number* __restrict high, const float* __restrict cos,
                const float* __restrict sin, Wide<Number> direction, int64_t pairs) {
  using W = Wide<Number>;
  for (int64_t i = 0; i < pairs; ++i) {
    const W a = static_cast<W>(low[i * step]), b = static_cast<W>(high[i * step]);
    const W c = static_cast<W>(cos[i]), s = direction * static_cast<W>(sin[i]);
    low[i * step] = static_cast<Number>(a * c - b * s);
    high[i * step] = static_cast<Number>(b * c + a * s);
  }
}

}  // namespace

void rotate_cpu(const at::Tensor& x, const RotaryAngles& angles, double direction) {
  run_typed(x.scalar_type(), [&]<class Number>(Number) {
    const int64_t half = angles.cos.size(1), width = x.size(1), first = angles.part.first;
    const int64_t head_dim = angles.part.head_dim > 0 ? angles.part.head_dim : 2 * half;
    const int64_t heads = width / head_dim;
    const bool interleaved = angles.part.interleaved;
    const int64_t stride = x.stride(0);
    auto* to = x.mutable_data_ptr<Number>();
    const auto *cos = angles.cos.const_data_ptr<float>(), *sin = angles.sin.const_data_ptr<float>();
    const auto sign = static_cast<Wide<Number>>(direction);
    over_rows(x.size(0), width, [=](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row)
        for (int64_t head = 0; head < heads; ++head) {
          Number* const low = to + row * stride + head * head_dim + first;
          if (interleaved)
            turn_pairs<2>(low, low + 1, cos + row * half, sin + row * half, sign, half);
          else
            turn_pairs<1>(low, low + half, cos + row * half, sin + row * half, sign, half);
        }
    });
  });
}

}  // namespace heddle::model
