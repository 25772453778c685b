// The activation of experts: a kernel of the device, one pass on the CPU for gates with a sigmoid, formulas
// of ATen's operators for everything else.
#include "heddle/nn/experts.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/erf.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/tanh.h>

#include <cmath>
#include <utility>

#include "lib/nn/activation/situ.h"
#include "lib/nn/cpu/cpu_rows.h"
#include "lib/nn/cpu/expert_activation_cpu.h"
#include "lib/nn/meta/recorded_kernels.h"

namespace heddle::model {
namespace {

using Kind = ExpertActivation::Kind;

// The columns of the gate (0) or of the up (1), a view.
at::Tensor columns_of(const ExpertActivation& how, const at::Tensor& hidden, int64_t which) {
  if (how.kind == Kind::relu2) return hidden;
  const int64_t width = hidden.size(1) / 2;
  return how.interleaved ? hidden.unflatten(1, {width, 2}).select(2, which)
                         : hidden.narrow(1, which * width, width);
}

// y and its derivatives, in wide arithmetic.
struct Formula {
  at::Tensor y, by_gate, by_up;  // by_up undefined for relu2
};

// silu-like gates: s = sigmoid(a g), y = g s (up + c).
Formula sigmoid_gate(const at::Tensor& g, const at::Tensor& up, double a, double c) {
  const at::Tensor s = at::sigmoid(g * a), gate = g * s, factor = c == 0 ? up : up + c;
  return {gate * factor, factor * s * (1 + g * a * (1 - s)), gate};
}

Formula clamped(const ExpertActivation& how, const at::Tensor& gate, const at::Tensor& up) {
  const at::Tensor g = at::clamp(gate, {}, how.limit), u = at::clamp(up, -how.limit, how.limit);
  Formula out = sigmoid_gate(g, u, how.alpha, how.shift);
  out.by_gate.mul_(gate.le(how.limit));
  out.by_up = out.by_up * up.abs().le(how.limit);
  return out;
}

Formula limited(const ExpertActivation& how, const at::Tensor& gate, const at::Tensor& up) {
  const at::Tensor u = at::clamp(up, -how.limit, how.limit);
  Formula out = sigmoid_gate(gate, u, 1, 0);
  const at::Tensor within = at::clamp(out.by_up, {}, how.limit);
  out.by_gate.mul_(out.by_up.le(how.limit));
  return {within * u, out.by_gate, within * u.eq(up)};
}

Formula gelu_gate(const at::Tensor& g, const at::Tensor& up) {
  const at::Tensor below = (at::erf(g * M_SQRT1_2) + 1) * 0.5;  // the normal distribution's
  const at::Tensor density = at::exp(g * g * -0.5) * (M_2_SQRTPI * M_SQRT1_2 * 0.5);
  const at::Tensor gate = g * below;
  return {gate * up, (below + g * density) * up, gate};
}

Formula gelu_tanh_gate(const at::Tensor& g, const at::Tensor& up) {
  constexpr double kCubic = 0.044715, kInner = M_2_SQRTPI * M_SQRT1_2;
  const at::Tensor square = g * g, t = at::tanh(g * (square * kCubic + 1) * kInner);
  const at::Tensor below = (t + 1) * 0.5, gate = g * below;
  const at::Tensor slope = g * (1 - t * t) * (square * (3 * kCubic) + 1) * (kInner * 0.5);
  return {gate * up, (below + slope) * up, gate};
}

Formula situ_gate(const ExpertActivation& how, const at::Tensor& g, const at::Tensor& up) {
  const SituFactors factors = situ_factors(how.situ, g, up);
  const at::Tensor by_up = factors.by_up.defined() ? factors.gate * factors.by_up : factors.gate;
  return {factors.gate * factors.up, factors.by_gate * factors.up, by_up};
}

Formula formula_of(const ExpertActivation& how, const at::Tensor& hidden) {
  const at::Tensor wide = hidden.to(accumulation_dtype(hidden.scalar_type()));
  if (how.kind == Kind::relu2) {
    const at::Tensor positive = at::relu(wide);
    return {positive * positive, positive * 2, {}};
  }
  const at::Tensor gate = columns_of(how, wide, 0), up = columns_of(how, wide, 1);
  switch (how.kind) {
    case Kind::clamped_swiglu:
      return clamped(how, gate, up);
    case Kind::limited_swiglu:
      return limited(how, gate, up);
    case Kind::geglu:
      return gelu_gate(gate, up);
    case Kind::geglu_tanh:
      return gelu_tanh_gate(gate, up);
    case Kind::situ:
      return situ_gate(how, gate, up);
    default:
      return sigmoid_gate(gate, up, 1, 0);
  }
}

ActivationGradients by_formula(const ExpertActivation& how, const at::Tensor& dy, const at::Tensor& hidden,
                               const at::Tensor& weights) {
  const Formula formula = formula_of(how, hidden);
  const at::Tensor wide = dy.to(formula.y.scalar_type()), column = weights.unsqueeze(1);
  const at::Tensor scaled = wide * column;
  ActivationGradients out;
  out.hidden = at::empty_like(hidden);
  columns_of(how, out.hidden, 0).copy_(scaled * formula.by_gate);
  if (formula.by_up.defined()) columns_of(how, out.hidden, 1).copy_(scaled * formula.by_up);
  out.weights = (wide * formula.y).sum(1);
  out.y = (formula.y * column).to(hidden.scalar_type());
  return out;
}

// On meta the kernel that records its cost: the CPU computes in one pass, too.
template <class ActivationKernel>
ActivationKernel activation_kernel(ActivationKernel DeviceOps::*member, const at::Tensor& hidden) {
  return hidden.is_meta() ? recorded_kernels().*member : device_kernel(member, hidden);
}

}  // namespace

at::Tensor activate(const ExpertActivation& how, const at::Tensor& hidden, const at::Tensor& weights) {
  const auto empty = [&] {
    return at::empty({hidden.size(0), hidden.size(1) / how.columns()}, hidden.options());
  };
  if (const auto kernel = activation_kernel(&DeviceOps::expert_activation, hidden); kernel != nullptr)
    if (const at::Tensor y = empty(); kernel(how, hidden, weights.contiguous(), y)) return y;
  if (!has_activation_kernel(how, hidden))
    return (formula_of(how, hidden).y * weights.unsqueeze(1)).to(hidden.scalar_type());
  const at::Tensor y = empty();
  activate_cpu(how, hidden, weights.contiguous(), y);
  return y;
}

ActivationGradients activate_backward(const ExpertActivation& how, const at::Tensor& dy,
                                      const at::Tensor& hidden, const at::Tensor& weights) {
  const auto empty = [&] {
    return ActivationGradients{at::empty_like(hidden), at::empty_like(weights),
                               at::empty(dy.sizes(), hidden.options())};
  };
  const auto kernel = activation_kernel(&DeviceOps::expert_activation_backward, hidden);
  if (kernel != nullptr)
    if (ActivationGradients out = empty();
        kernel(how, dy.contiguous(), hidden, weights.contiguous(), out.hidden, out.weights, out.y))
      return out;
  if (!has_activation_kernel(how, hidden)) return by_formula(how, dy, hidden, weights);
  ActivationGradients out = empty();
  activate_backward_cpu(how, dy.contiguous(), hidden, weights.contiguous(), out);
  return out;
}

}  // namespace heddle::model
