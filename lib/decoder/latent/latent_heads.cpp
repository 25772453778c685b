// Autograd nodes that assemble the heads of latent attention. They save the angles.
#include "lib/decoder/latent/latent_heads.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <memory>
#include <utility>

#include "heddle/model/autograd_node.h"
#include "lib/decoder/latent/latent_rows_cpu.h"

namespace heddle::decoder {
namespace {

using model::BelowAutograd;
using model::Gradients;
using model::RotaryAngles;

// Rotates the last dim of x [tokens, heads, rotary].
at::Tensor turned(const at::Tensor& x, const RotaryAngles& angles, bool interleaved, double direction) {
  if (!angles.cos.defined()) return x;
  const at::Tensor cos = angles.cos.unsqueeze(1), sin = (angles.sin * direction).unsqueeze(1);
  const int64_t half = x.size(2) / 2;
  const at::Tensor pairs = interleaved ? x.reshape({x.size(0), x.size(1), half, 2})
                                       : x.reshape({x.size(0), x.size(1), 2, half}).transpose(2, 3);
  const at::Tensor a = pairs.select(3, 0), b = pairs.select(3, 1);
  const at::Tensor first = a * cos - b * sin, second = b * cos + a * sin;
  const at::Tensor out = interleaved ? at::stack({first, second}, 3).flatten(2) : at::cat({first, second}, 2);
  return out.to(x.scalar_type());
}

// Returns the queries with the rotary part of each head rotated, as a new tensor.
at::Tensor turned_queries(const at::Tensor& q, const RotaryAngles& angles, const LatentShape& shape,
                          double direction) {
  if (has_latent_kernel(q)) {
    at::Tensor y = q.clone(at::MemoryFormat::Contiguous);
    rotate_heads_cpu(y, angles, shape, direction);
    return y;
  }
  const at::Tensor heads = q.reshape({q.size(0), shape.heads, shape.key()});
  const at::Tensor last =
      turned(heads.narrow(2, shape.plain, shape.rotary), angles, shape.interleaved, direction);
  return at::cat({heads.narrow(2, 0, shape.plain), last}, 2).flatten(1);
}

bool is_alone(const at::Tensor& x) {
  return has_latent_kernel(x) && x.use_count() == 1 && x.storage().use_count() == 1;
}

std::pair<at::Tensor, at::Tensor> keys_and_values(const at::Tensor& of_latent, const at::Tensor& shared_key,
                                                  const RotaryAngles& angles, const LatentShape& shape) {
  const int64_t tokens = of_latent.size(0);
  if (has_latent_kernel(of_latent) && has_latent_kernel(shared_key)) {
    const at::Tensor k = at::empty({tokens, shape.heads * shape.key()}, of_latent.options());
    const at::Tensor v = at::empty({tokens, shape.heads * shape.value}, of_latent.options());
    assemble_cpu(of_latent, shared_key, angles, shape, k, v);
    return {k, v};
  }
  const at::Tensor heads = of_latent.reshape({tokens, shape.heads, shape.plain + shape.value});
  const at::Tensor last = turned(shared_key.unsqueeze(1), angles, shape.interleaved, 1.0);
  return {at::cat({heads.narrow(2, 0, shape.plain), last.expand({tokens, shape.heads, shape.rotary})}, 2)
              .flatten(1),
          heads.narrow(2, shape.plain, shape.value).flatten(1)};
}

// Edges: q, of_latent, shared_key.
struct LatentHeadsNode final : model::LayerNode {
  LatentHeadsNode() : LayerNode("LatentHeadsBackward") {}
  model::Saved cos, sin;
  LatentShape shape;
  int64_t tokens = 0;
  at::TensorOptions options;

  Gradients backward(Gradients&& gradients) override {
    const RotaryAngles angles{cos.unpack(), sin.unpack()};
    Gradients out(3);
    if (at::Tensor& dq = gradients[0]; dq.defined()) {
      if (is_alone(dq))
        rotate_heads_cpu(out[0] = std::move(dq), angles, shape, -1.0);
      else
        out[0] = turned_queries(dq, angles, shape, -1.0);
    }
    const auto or_zeros = [&](const at::Tensor& one, int64_t width) {
      return one.defined() ? one : at::zeros({tokens, shape.heads * width}, options);
    };
    const at::Tensor dk = or_zeros(gradients[1], shape.key()), dv = or_zeros(gradients[2], shape.value);
    if (has_latent_kernel(dk) && has_latent_kernel(dv)) {
      out[1] = at::empty({tokens, shape.heads * (shape.plain + shape.value)}, dk.options());
      out[2] = at::empty({tokens, shape.rotary}, dk.options());
      take_apart_cpu(dk, dv, angles, shape, out[1], out[2]);
      return out;
    }
    const at::Tensor keys = dk.reshape({tokens, shape.heads, shape.key()});
    out[1] = at::cat({keys.narrow(2, 0, shape.plain), dv.reshape({tokens, shape.heads, shape.value})}, 2)
                 .flatten(1);
    const at::ScalarType wide = dk.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    const at::Tensor sum = keys.narrow(2, shape.plain, shape.rotary).sum(1, true, wide);
    out[2] = turned(sum, angles, shape.interleaved, -1.0).squeeze(1).to(dk.scalar_type());
    return out;
  }
  void release_variables() override {
    cos.reset();
    sin.reset();
  }
};

// Edge: `both`.
struct SplitLatentNode final : model::LayerNode {
  SplitLatentNode() : LayerNode("SplitLatentBackward") {}
  std::vector<int64_t> widths;
  int64_t tokens = 0;
  at::TensorOptions options;

  Gradients backward(Gradients&& gradients) override {
    for (size_t i : {0, 1})
      if (!gradients[i].defined()) gradients[i] = at::zeros({tokens, widths[i]}, options);
    return {at::cat({gradients[0], gradients[1]}, 1)};
  }
};

}  // namespace

std::pair<at::Tensor, at::Tensor> split_latent(at::Tensor both, int64_t rotary) {
  const int64_t rank = both.size(1) - rotary;
  std::shared_ptr<SplitLatentNode> node;
  if (torch::autograd::compute_requires_grad(both)) {
    node = model::make_node<SplitLatentNode>(both);
    node->widths = {rank, rotary};
    node->tokens = both.size(0);
    node->options = both.options();
  }
  std::pair<at::Tensor, at::Tensor> parts;
  {
    const BelowAutograd below;
    parts = {both.narrow(1, 0, rank).contiguous(), both.narrow(1, rank, rotary)};
  }
  if (!node) return parts;
  torch::autograd::set_history(parts.first, node);
  torch::autograd::set_history(parts.second, node);
  return parts;
}

LatentHeads assemble_heads(at::Tensor q, const at::Tensor& of_latent, const at::Tensor& shared_key,
                           const RotaryAngles& angles, const LatentShape& shape) {
  std::shared_ptr<LatentHeadsNode> node;
  if (torch::autograd::compute_requires_grad(q, of_latent, shared_key)) {
    node = model::make_node<LatentHeadsNode>(q, of_latent, shared_key);
    if (angles.cos.defined()) {
      node->cos.save(angles.cos);
      node->sin.save(angles.sin);
    }
    node->shape = shape;
    node->tokens = of_latent.size(0);
    node->options = of_latent.options();
  }
  LatentHeads out;
  {
    const BelowAutograd below;
    if (is_alone(q))
      rotate_heads_cpu(out.q = q.variable_data(), angles, shape, 1.0);
    else
      out.q = turned_queries(q, angles, shape, 1.0);
    std::tie(out.k, out.v) = keys_and_values(of_latent, shared_key, angles, shape);
  }
  if (!node) return out;
  for (at::Tensor* one : {&out.q, &out.k, &out.v}) torch::autograd::set_history(*one, node);
  return out;
}

}  // namespace heddle::decoder
