// The gated unit and its backward; silu(gate) is computed again in the backward rather than kept.
#include "heddle/nn/activation.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>

#include <utility>

#include "heddle/model/autograd_node.h"
#include "heddle/nn/device_ops.h"
#include "lib/nn/cpu/cpu_rows.h"
#include "lib/nn/cpu/row_kernels.h"
#include "lib/nn/meta/recorded_kernels.h"

namespace heddle::model {
namespace {

struct SwigluNode final : LayerNode {
  SwigluNode() : LayerNode("SwigluBackward") {}
  Saved gate, up;

  Gradients backward(Gradients&& gradients) override {
    const at::Tensor saved_gate = gate.unpack(), saved_up = up.unpack();
    // The kernel needs more precision than a 16-bit sigmoid.
    const bool fine = has_rows(saved_gate) && has_rows(saved_up) &&
                      saved_gate.scalar_type() != at::kBFloat16 &&
                      saved_gate.scalar_type() == saved_up.scalar_type();
    if (fine) return on_cpu(gradients[0].contiguous(), saved_gate, saved_up);
    Gradients out;
    if (on_device(gradients[0], saved_gate, saved_up, out)) return out;
    at::Tensor d_gate = at::silu_backward(at::mul(gradients[0], saved_up), saved_gate);
    return {std::move(d_gate), at::silu(saved_gate).mul_(gradients[0])};
  }
  static bool has_rows(const at::Tensor& x) {
    return has_row_kernel(x) || (x.is_meta() && x.dim() == 2 && computes_on_cpu(x));
  }
  static bool on_device(const at::Tensor& dy, const at::Tensor& gate, const at::Tensor& up, Gradients& out) {
    const auto kernel = device_kernel(&DeviceOps::swiglu_backward, dy);
    if (kernel == nullptr || gate.dim() != 2) return false;
    const int64_t width = gate.size(1);
    const at::Tensor both = at::empty({gate.size(0), 2 * width}, gate.options());
    if (!kernel(dy, gate, up, both)) return false;
    out = {both.narrow(1, 0, width), both.narrow(1, width, width)};
    return true;
  }
  static Gradients on_cpu(const at::Tensor& dy, const at::Tensor& gate, const at::Tensor& up) {
    const int64_t width = gate.size(1);  // side by side, as the preceding product needs them
    const at::Tensor both = at::empty({gate.size(0), 2 * width}, gate.options());
    Gradients out{both.narrow(1, 0, width), both.narrow(1, width, width)};
    const at::Tensor sigmoid = at::sigmoid(gate);
    if (gate.is_meta())
      recorded_kernels().swiglu_backward(dy, gate, up, both);
    else
      swiglu_backward_cpu(dy, gate, up, sigmoid, out[0], out[1]);
    return out;
  }
  void release_variables() override {
    gate.reset();
    up.reset();
  }
};

}  // namespace

namespace {

at::Tensor swiglu_of(const at::Tensor& gate, const at::Tensor& up) {
  const auto kernel = device_kernel(&DeviceOps::swiglu, gate);
  if (kernel != nullptr && gate.dim() == 2) {
    at::Tensor y = at::empty(gate.sizes(), gate.options());
    if (kernel(gate, up, y)) return y;
  }
  return at::silu(gate).mul_(up);
}

}  // namespace

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  return forward_with<SwigluNode>(
      [&](SwigluNode& node) {
        node.gate.save(gate);
        node.up.save(up);
      },
      [&] { return swiglu_of(gate, up); }, gate, up);
}

}  // namespace heddle::model
