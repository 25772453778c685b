// The rotation of heads on the CPU, in one pass.
#include "heddle/model/rotary_cpu.h"

#include "heddle/model/cpu_rows.h"

namespace heddle::model {
namespace {

template <class Number>
void turn_head(const Number* __restrict x, const float* __restrict cos, const float* __restrict sin,
               Wide<Number> direction, Number* __restrict y, int64_t half) {
  using W = Wide<Number>;
  for (int64_t i = 0; i < half; ++i) {
    const W a = static_cast<W>(x[i]), b = static_cast<W>(x[half + i]);
    const W c = static_cast<W>(cos[i]), s = direction * static_cast<W>(sin[i]);
    y[i] = static_cast<Number>(a * c - b * s);
    y[half + i] = static_cast<Number>(b * c + a * s);
  }
}

}  // namespace

void rotate_cpu(const at::Tensor& x, const RotaryAngles& angles, double direction, const at::Tensor& y) {
  run_typed(x.scalar_type(), [&]<class Number>(Number) {
    const int64_t half = angles.cos.size(1), width = x.size(1), heads = width / (2 * half);
    const auto* from = x.const_data_ptr<Number>();
    auto* to = y.mutable_data_ptr<Number>();
    const auto *cos = angles.cos.const_data_ptr<float>(), *sin = angles.sin.const_data_ptr<float>();
    const auto sign = static_cast<Wide<Number>>(direction);
    over_rows(x.size(0), width, [=](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row)
        for (int64_t head = 0; head < heads; ++head) {
          const int64_t at = row * width + head * 2 * half;
          turn_head(from + at, cos + row * half, sin + row * half, sign, to + at, half);
        }
    });
  });
}

}  // namespace heddle::model
