// The backward of the gated unit on the CPU, in one pass.
#include "lib/nn/cpu/row_kernels.h"

#include "lib/nn/cpu/cpu_rows.h"

namespace heddle::model {
namespace {

template <class Number>
void backward_stretch(const Number* __restrict dy, const Number* __restrict gate, const Number* __restrict up,
                      const Number* __restrict sigmoid, Number* __restrict d_gate, Number* __restrict d_up,
                      int64_t count) {
  using W = Wide<Number>;
  for (int64_t i = 0; i < count; ++i) {
    const W g = static_cast<W>(gate[i]), s = static_cast<W>(sigmoid[i]), d = static_cast<W>(dy[i]) * s;
    d_up[i] = static_cast<Number>(d * g);
    d_gate[i] = static_cast<Number>(d * static_cast<W>(up[i]) * (W{1} + g * (W{1} - s)));
  }
}

}  // namespace

void swiglu_backward_cpu(const at::Tensor& dy, const at::Tensor& gate, const at::Tensor& up,
                         const at::Tensor& sigmoid, const at::Tensor& d_gate, const at::Tensor& d_up) {
  run_typed(gate.scalar_type(), [&]<class Number>(Number) {
    const auto *d = dy.const_data_ptr<Number>(), *g = gate.const_data_ptr<Number>();
    const auto *u = up.const_data_ptr<Number>(), *s = sigmoid.const_data_ptr<Number>();
    auto *to_gate = d_gate.mutable_data_ptr<Number>(), *to_up = d_up.mutable_data_ptr<Number>();
    const int64_t width = gate.size(1), gate_row = gate.stride(0), up_row = up.stride(0);
    const int64_t d_gate_row = d_gate.stride(0), d_up_row = d_up.stride(0);
    over_rows(gate.size(0), width, [=](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row)
        backward_stretch(d + row * width, g + row * gate_row, u + row * up_row, s + row * width,
                         to_gate + row * d_gate_row, to_up + row * d_up_row, width);
    });
  });
}

}  // namespace heddle::model
