// One pass over the rows.
#include "heddle/model/expert_activation_cpu.h"

#include "heddle/model/cpu_rows.h"

namespace heddle::model {
namespace {

// y and sigmoid may be one.
template <class Number>
void weighed_row(const Number* dy, const Number* gate, const Number* up, Wide<Number> weight,
                 const Wide<Number>* sigmoid, Number* d_gate, Number* d_up, Number* y, int64_t width) {
  using W = Wide<Number>;
#pragma GCC ivdep
  for (int64_t i = 0; i < width; ++i) {
    const W g = static_cast<W>(gate[i]), u = static_cast<W>(up[i]), s = sigmoid[i];
    const W d = static_cast<W>(dy[i]) * weight * s;
    d_up[i] = static_cast<Number>(d * g);
    d_gate[i] = static_cast<Number>(d * u * (W{1} + g * (W{1} - s)));
    y[i] = static_cast<Number>(g * s * u * weight);
  }
}

template <class Number>
Wide<Number> weight_gradient(const Number* dy, const Number* gate, const Number* up,
                             const Wide<Number>* sigmoid, int64_t width) {
  using W = Wide<Number>;
  return sum_of<W>(width, [=](int64_t i) {
    return static_cast<W>(dy[i]) * static_cast<W>(gate[i]) * sigmoid[i] * static_cast<W>(up[i]);
  });
}

}  // namespace

void weigh_swiglu_cpu(const at::Tensor& hidden, const at::Tensor& weights, const at::Tensor& silu) {
  run_typed(hidden.scalar_type(), [&]<class Number>(Number) {
    using W = Wide<Number>;
    const Number* const h = hidden.const_data_ptr<Number>();
    const W* const weight = weights.const_data_ptr<W>();
    Number* const y = silu.mutable_data_ptr<Number>();
    const int64_t width = silu.size(1);
    over_rows(silu.size(0), width, [=](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const Number* __restrict up = h + row * 2 * width + width;
        Number* __restrict to = y + row * width;
        const W w = weight[row];
        for (int64_t i = 0; i < width; ++i)
          to[i] = static_cast<Number>(static_cast<W>(to[i]) * static_cast<W>(up[i]) * w);
      }
    });
  });
}

void weighed_swiglu_backward_cpu(const at::Tensor& dy, const at::Tensor& hidden, const at::Tensor& weights,
                                 const at::Tensor& sigmoid, const ActivationGradients& out) {
  run_typed(hidden.scalar_type(), [&]<class Number>(Number) {
    using W = Wide<Number>;
    const auto *d = dy.const_data_ptr<Number>(), *h = hidden.const_data_ptr<Number>();
    const auto *weight = weights.const_data_ptr<W>(), *s = sigmoid.const_data_ptr<W>();
    auto *dh = out.hidden.mutable_data_ptr<Number>(), *y = out.y.mutable_data_ptr<Number>();
    auto* const d_weight = out.weights.mutable_data_ptr<W>();
    const int64_t width = dy.size(1);
    over_rows(dy.size(0), 2 * width, [=](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const Number *gate = h + row * 2 * width, *up = gate + width, *dy_row = d + row * width;
        const W* const sigmoid_row = s + row * width;
        d_weight[row] = weight_gradient(dy_row, gate, up, sigmoid_row, width);
        Number* const d_gate = dh + row * 2 * width;
        weighed_row(dy_row, gate, up, weight[row], sigmoid_row, d_gate, d_gate + width, y + row * width,
                    width);
      }
    });
  });
}

}  // namespace heddle::model
