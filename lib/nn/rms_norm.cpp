// RMSNorm and its node. Saved: x and one reciprocal root per row.
#include "heddle/nn/rms_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sum.h>

#include "core/model/parameter.h"
#include "heddle/model/autograd_node.h"
#include "heddle/nn/device_ops.h"
#include "lib/nn/cpu/cpu_rows.h"
#include "lib/nn/cpu/row_kernels.h"

namespace heddle {
namespace model {
namespace {

struct Normalised {
  at::Tensor y, root;
};

bool has_kernels(const at::Tensor& x, const at::Tensor& weight) {
  return has_kernel(x) && has_kernel(weight) && x.scalar_type() == weight.scalar_type();
}

// The factor of normalised rows.
enum class Scale { weight, one_plus_weight };

at::Tensor factor_of(const at::Tensor& weight, const at::Tensor& x, Scale scale) {
  return scale == Scale::weight ? weight : weight.to(accumulation_dtype(x.scalar_type())) + 1;
}

Normalised room_for(const at::Tensor& x, const at::Tensor& weight) {
  const at::TensorOptions wide = x.options().dtype(accumulation_dtype(x.scalar_type()));
  return {at::empty_like(x, at::MemoryFormat::Contiguous), at::empty({x.numel() / weight.numel(), 1}, wide)};
}

// By the device's kernel; false: it has none for these tensors.
bool normalise_on_device(const at::Tensor& x, const at::Tensor& weight, double eps, Scale scale,
                         Normalised& out) {
  const auto kernel = device_kernel(&DeviceOps::rms_norm, x);
  if (kernel == nullptr) return false;
  out = room_for(x, weight);
  return kernel(x, weight, eps, scale == Scale::one_plus_weight, out.y, out.root);
}

Normalised normalise(const at::Tensor& x, const at::Tensor& given, double eps, Scale scale) {
  Normalised out;
  if (normalise_on_device(x, given, eps, scale, out)) return out;
  const at::Tensor weight = factor_of(given, x, scale);
  const at::ScalarType dtype = accumulation_dtype(x.scalar_type());
  if (has_kernels(x, weight)) {
    out = room_for(x, weight);
    rms_norm_cpu(x, weight, eps, out.y, out.root);
    return out;
  }
  const at::Tensor rows = x.reshape({-1, weight.numel()}).to(dtype);
  at::Tensor root = (rows * rows).mean(-1, true).add_(eps).rsqrt_();
  const at::Tensor normal = rows * root;
  if (scale == Scale::one_plus_weight) return {(weight * normal).to(x.scalar_type()).view(x.sizes()), root};
  return {(weight * normal.to(x.scalar_type())).view(x.sizes()), root};
}

struct RmsNormNode final : LayerNode {
  RmsNormNode() : LayerNode("RmsNormBackward") {}
  Saved x, weight, root;
  Scale scale = Scale::weight;

  Gradients backward(Gradients&& gradients) override {
    const at::Tensor saved_x = x.unpack();
    Gradients out(2);
    if (on_device(gradients[0], saved_x, out)) return out;
    out = by_rows(std::move(gradients), saved_x, factor_of(weight.unpack(), saved_x, scale));
    if (scale == Scale::one_plus_weight && out[1].defined())
      out[1] = out[1].to(weight.unpack().scalar_type());
    return out;
  }
  bool on_device(const at::Tensor& dy, const at::Tensor& saved_x, Gradients& out) {
    const auto kernel = device_kernel(&DeviceOps::rms_norm_backward, dy);
    if (kernel == nullptr) return false;
    const at::Tensor w = weight.unpack();
    Gradients made(2);
    if (task_should_compute_output(0)) made[0] = at::empty_like(saved_x, at::MemoryFormat::Contiguous);
    if (task_should_compute_output(1)) made[1] = at::empty_like(w);
    if (!kernel(dy, saved_x, w, root.unpack(), scale == Scale::one_plus_weight, made[0], made[1]))
      return false;
    out = std::move(made);
    return true;
  }
  Gradients by_rows(Gradients&& gradients, const at::Tensor& saved_x, const at::Tensor& w) {
    if (has_kernels(saved_x, w)) return on_cpu(gradients[0].contiguous(), saved_x, w);
    const at::ScalarType dtype = accumulation_dtype(saved_x.scalar_type());
    const at::Tensor& roots = root.unpack();
    const at::Tensor normal = saved_x.reshape({-1, w.numel()}).to(dtype) * roots;
    const at::Tensor dy = gradients[0].reshape({-1, w.numel()}).to(dtype);
    Gradients out(2);
    if (task_should_compute_output(1)) out[1] = (dy * normal).sum(0).to(w.scalar_type());
    if (task_should_compute_output(0)) {
      const at::Tensor dn = dy * w.to(dtype);
      const at::Tensor along = (dn * normal).mean(-1, true);
      out[0] = ((dn - normal * along) * roots).to(saved_x.scalar_type()).view(saved_x.sizes());
    }
    return out;
  }
  Gradients on_cpu(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w) {
    Gradients out(2);
    if (task_should_compute_output(0)) out[0] = at::empty_like(x);
    if (task_should_compute_output(1)) out[1] = at::empty_like(w);
    rms_norm_backward_cpu(dy, x, w, root.unpack(), out[0], out[1]);
    return out;
  }
  void release_variables() override {
    x.reset();
    weight.reset();
    root.reset();
  }
};

}  // namespace

namespace {

at::Tensor scaled_norm(const at::Tensor& x, const at::Tensor& weight, double eps, Scale scale) {
  Normalised out;
  {
    const BelowAutograd below;
    out = normalise(x, weight, eps, scale);
  }
  if (torch::autograd::compute_requires_grad(x, weight)) {
    auto node = make_node<RmsNormNode>(x, weight);
    node->x.save(x);
    node->weight.save_weight(weight);
    node->root.save(out.root);
    node->scale = scale;
    torch::autograd::set_history(out.y, node);
  }
  return out.y;
}

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return scaled_norm(x, weight, eps, Scale::weight);
}

at::Tensor rms_norm_plus_one(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return scaled_norm(x, weight, eps, Scale::one_plus_weight);
}

}  // namespace model

RmsNorm::RmsNorm(int64_t width, double eps, const at::TensorOptions& options, Scale scale)
    : width_(width), eps_(eps), scale_(scale) {
  if (scale == Scale::none) return;
  const Init init{scale == Scale::weight ? Init::Kind::ones : Init::Kind::zeros, 0.0};
  weight = model::make_parameter({width}, init, options);
  add_slot("weight", weight, init);
}

const at::Tensor& RmsNorm::ones_like(const at::Tensor& x) {
  if (!weight.defined() || weight.scalar_type() != x.scalar_type() || weight.device() != x.device()) {
    const model::BelowAutograd below;
    weight = at::ones({width_}, x.options());
  }
  return weight;
}

at::Tensor RmsNorm::forward(at::Tensor x, const Batch&) {
  if (scale_ == Scale::one_plus_weight) return model::rms_norm_plus_one(x, weight, eps_);
  return model::rms_norm(x, scale_ == Scale::none ? ones_like(x) : weight, eps_);
}

}  // namespace heddle
