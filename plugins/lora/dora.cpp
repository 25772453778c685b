// Autograd node of DoRA's row scaling, and row lengths computed in blocks.
#include "dora.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/sum.h>

#include <algorithm>
#include <memory>

#include "heddle/model/autograd_node.h"

namespace heddle::lora {
namespace {

constexpr int64_t kBlock = 1 << 22;  // elements of W + s B A computed at once

at::ScalarType wide(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

at::Tensor lengths_of(const at::Tensor& rows) {
  return at::linalg_vector_norm(rows, 2, at::IntArrayRef{1}, false, {});
}

// Edges: z, magnitude.
struct ScaledRowsNode final : model::LayerNode {
  ScaledRowsNode() : LayerNode("ScaledRowsBackward") {}
  model::Saved z, magnitude, lengths;

  model::Gradients backward(model::Gradients&& gradients) override {
    model::Gradients out(2);
    if (!gradients[0].defined()) return out;
    const at::Tensor dy = gradients[0], of = lengths.unpack(), m = magnitude.unpack();
    const at::Tensor rows = z.unpack();
    if (task_should_compute_output(0)) out[0] = dy * (m / of).to(dy.scalar_type());
    if (!task_should_compute_output(1)) return out;
    const at::Tensor products = (dy.to(wide(dy)) * rows.to(wide(rows))).reshape({-1, dy.size(-1)});
    out[1] = (products.sum(0) / of).to(m.scalar_type());
    return out;
  }
  void release_variables() override {
    z.reset();
    magnitude.reset();
    lengths.reset();
  }
};

}  // namespace

Magnitude::Magnitude(const at::Tensor& of, const at::TensorOptions& options)
    : weight(at::empty({of.size(0)}, options)) {
  if (!weight.is_meta()) weight.copy_(lengths_of(of.detach().to(wide(of))));
  weight.set_requires_grad(true);
  add_slot("weight", weight, {Init::Kind::ones, 0});
}

Derived from_rows(const std::string& weight, const ParameterSlot& slot) {
  Derived out;
  out.from = weight;
  out.shape = slot.tensor->sizes().vec();
  out.dtype = slot.tensor->scalar_type();
  out.init = slot.init;
  out.by_rows = true;
  out.fill = [](const Shard& box, const at::Tensor& rows) {
    box.tensor.detach().copy_(lengths_of(rows.to(wide(rows))));
  };
  return out;
}

at::Tensor row_lengths(const at::Tensor& weight, const at::Tensor& a, const at::Tensor& b, double scale) {
  const model::BelowAutograd below;
  const at::ScalarType dtype = wide(weight);
  const at::Tensor out = at::empty({weight.size(0)}, weight.options().dtype(dtype));
  if (out.is_meta()) return out;
  const at::Tensor scaled = a.to(dtype) * scale;
  const int64_t block = std::max<int64_t>(1, kBlock / std::max<int64_t>(1, weight.size(1)));
  for (int64_t at = 0; at < weight.size(0); at += block) {
    const int64_t count = std::min(block, weight.size(0) - at);
    const at::Tensor rows =
        at::matmul(b.narrow(0, at, count).to(dtype), scaled) + weight.narrow(0, at, count).to(dtype);
    out.narrow(0, at, count).copy_(lengths_of(rows));
  }
  return out;
}

at::Tensor scaled_rows(const at::Tensor& z, const at::Tensor& magnitude, const at::Tensor& lengths) {
  return model::forward_with<ScaledRowsNode>(
      [&](ScaledRowsNode& node) {
        node.z.save(z);
        node.magnitude.save_weight(magnitude);
        node.lengths.save(lengths);
      },
      [&] { return z * (magnitude / lengths).to(z.scalar_type()); }, z, magnitude);
}

}  // namespace heddle::lora
