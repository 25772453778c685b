// LayerNorm and its node. Saved: x, and the mean and the reciprocal root of each row.
#include "heddle/nn/rms_norm.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>

#include <array>
#include <utility>

#include "core/model/parameter.h"
#include "heddle/model/autograd_node.h"
#include "heddle/ops/compute_log.h"
#include "lib/nn/cpu/cpu_rows.h"

namespace heddle {
namespace model {
namespace {

struct Normed {
  at::Tensor y, mean, root;  // y in the dtype of sums
};

void record(const char* name, const at::Tensor& x, double operations, double tensors) {
  const double numbers = static_cast<double>(x.numel()),
               bytes = numbers * static_cast<double>(x.element_size());
  record_operator(name, {operations * numbers, tensors * bytes, bytes});
}

at::Tensor in_dtype(const at::Tensor& one, at::ScalarType dtype) {
  return one.defined() ? one.to(dtype) : one;
}

// LibTorch's takes no meta tensors.
Normed norm_of(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps) {
  const at::ScalarType dtype = accumulation_dtype(x.scalar_type());
  if (x.is_meta()) {
    record("heddle::layer_norm", x, 6, 1);
    const at::TensorOptions wide = x.options().dtype(dtype);
    const at::Tensor one_a_row = at::empty({x.numel() / x.size(-1), 1}, wide);
    return {at::empty(x.sizes(), wide), one_a_row, at::empty_like(one_a_row)};
  }
  auto [y, mean, root] = at::native_layer_norm(x.contiguous().to(dtype), {x.size(-1)},
                                               in_dtype(weight, dtype), in_dtype(bias, dtype), eps);
  return {std::move(y), std::move(mean), std::move(root)};
}

// Edges: x, weight, bias.
struct LayerNormNode final : LayerNode {
  LayerNormNode() : LayerNode("LayerNormBackward") {}
  Saved x, weight, bias, mean, root;

  Gradients backward(Gradients&& gradients) override {
    const at::Tensor in = x.unpack(), w = weight.unpack(), b = bias.unpack();
    if (in.is_meta()) {
      record("heddle::layer_norm_backward", in, 10, 2);
      const auto like = [](const at::Tensor& one) { return one.defined() ? at::empty_like(one) : one; };
      return {at::empty_like(in), like(w), like(b)};
    }
    const at::ScalarType dtype = accumulation_dtype(in.scalar_type());
    const auto wide = [&](const at::Tensor& one) { return in_dtype(one, dtype); };
    const std::array<bool, 3> wanted = {task_should_compute_output(0),
                                        w.defined() && task_should_compute_output(1),
                                        b.defined() && task_should_compute_output(2)};
    auto [dx, dw, db] =
        at::native_layer_norm_backward(wide(gradients[0].contiguous()), wide(in.contiguous()), {in.size(-1)},
                                       mean.unpack(), root.unpack(), wide(w), wide(b), wanted);
    Gradients out(3);
    if (wanted[0]) out[0] = dx.to(in.scalar_type());
    if (wanted[1]) out[1] = dw.to(w.scalar_type());
    if (wanted[2]) out[2] = db.to(b.scalar_type());
    return out;
  }
  void release_variables() override {
    for (Saved* one : {&x, &weight, &bias, &mean, &root}) one->reset();
  }
};

}  // namespace

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps) {
  at::Tensor y;
  Normed normed;
  {
    const BelowAutograd below;
    normed = norm_of(x, weight, bias, eps);
    y = normed.y.to(x.scalar_type());
  }
  if (!torch::autograd::compute_requires_grad(x, weight, bias)) return y;
  auto node = std::shared_ptr<LayerNormNode>(new LayerNormNode(), torch::autograd::deleteNode);
  node->set_next_edges({edge_to(x), edge_to(weight), edge_to(bias)});
  node->x.save(x);
  node->weight.save_weight(weight);
  node->bias.save_weight(bias);
  node->mean.save(normed.mean);
  node->root.save(normed.root);
  torch::autograd::set_history(y, node);
  return y;
}

}  // namespace model

LayerNorm::LayerNorm(int64_t width, double eps, bool with_bias, const at::TensorOptions& options,
                     bool with_weight)
    : eps_(eps) {
  const Init ones{Init::Kind::ones, 0.0}, zeros{Init::Kind::zeros, 0.0};
  if (with_weight) {
    weight = model::make_parameter({width}, ones, options);
    add_slot("weight", weight, ones);
  }
  if (!with_bias) return;
  bias = model::make_parameter({width}, zeros, options);
  add_slot("bias", bias, zeros);
}

at::Tensor LayerNorm::forward(at::Tensor x, const Batch&) {
  return model::layer_norm(x, weight, bias, eps_);
}

}  // namespace heddle
