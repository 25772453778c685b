// The node. Scores are computed again in the backward, one block at a time.
#include "lib/decoder/blocks/block_mix.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mv.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>

#include <memory>
#include <vector>

#include "heddle/model/autograd_node.h"
#include "lib/nn/cpu/cpu_rows.h"

namespace heddle::decoder {
namespace {

using model::Gradients;

// Of one block, wide: 1 / its root mean square, and its score, both [tokens].
struct Score {
  at::Tensor root, score;
};

Score score_of(const at::Tensor& value, const at::Tensor& weight, double eps) {
  at::Tensor root = (value * value).mean(-1).add_(eps).rsqrt_();
  at::Tensor score = at::mv(value, weight) * root;
  return {std::move(root), std::move(score)};
}

// [tokens, values].
at::Tensor softmax_of(const std::vector<Score>& scores) {
  std::vector<at::Tensor> all;
  for (const Score& one : scores) all.push_back(one.score);
  return at::softmax(at::stack(all, 1), -1);
}

// What scores multiply: norm * proj, wide.
at::Tensor weight_of(const at::Tensor& norm, const at::Tensor& proj, at::ScalarType wide) {
  return norm.to(wide) * proj.to(wide).squeeze(0);
}

// Edges: the values, the norm, proj.
struct BlockMixNode final : model::LayerNode {
  BlockMixNode() : LayerNode("BlockMixBackward") {}
  std::vector<model::Saved> values;
  model::Saved norm, proj;
  double eps = 0;

  Gradients backward(Gradients&& gradients) override {
    std::vector<at::Tensor> saved;
    for (model::Saved& one : values) saved.push_back(one.unpack());
    const at::Tensor n = norm.unpack(), p = proj.unpack();
    Gradients out;
    const at::ScalarType wide = model::wide_of(saved[0].scalar_type());
    const at::Tensor weight = weight_of(n, p, wide), dy = gradients[0].to(wide);
    std::vector<Score> scores;
    std::vector<at::Tensor> d_weights;  // of the softmax
    for (const at::Tensor& one : saved) {
      scores.push_back(score_of(one.to(wide), weight, eps));
      d_weights.push_back((dy * one).sum(-1));
    }
    const at::Tensor shares = softmax_of(scores), d_shares = at::stack(d_weights, 1);
    const at::Tensor d_scores = shares * (d_shares - (shares * d_shares).sum(-1, true));
    at::Tensor d_weight = at::zeros_like(weight);
    for (size_t j = 0; j < saved.size(); ++j) {
      const auto index = static_cast<int64_t>(j);
      const at::Tensor value = saved[j].to(wide), scaled = d_scores.select(1, index) * scores[j].root;
      const at::Tensor along = scaled * scores[j].score * scores[j].root / static_cast<double>(value.size(1));
      d_weight += at::mv(value.t(), scaled);
      out.push_back((dy * shares.select(1, index).unsqueeze(1) + scaled.unsqueeze(1) * weight -
                     along.unsqueeze(1) * value)
                        .to(saved[j].scalar_type()));
    }
    out.push_back((d_weight * p.to(wide).squeeze(0)).to(n.scalar_type()));
    out.push_back((d_weight * n.to(wide)).unsqueeze(0).to(p.scalar_type()));
    return out;
  }
  void release_variables() override {
    for (model::Saved& one : values) one.reset();
    norm.reset();
    proj.reset();
  }
};

at::Tensor mixed(std::span<const at::Tensor> values, const at::Tensor& norm, const at::Tensor& proj,
                 double eps) {
  const at::ScalarType wide = model::wide_of(values[0].scalar_type());
  const at::Tensor weight = weight_of(norm, proj, wide);
  std::vector<Score> scores;
  for (const at::Tensor& one : values) scores.push_back(score_of(one.to(wide), weight, eps));
  const at::Tensor shares = softmax_of(scores);
  at::Tensor sum = values[0] * shares.narrow(1, 0, 1);
  for (size_t j = 1; j < values.size(); ++j)
    sum.addcmul_(values[j].to(wide), shares.narrow(1, static_cast<int64_t>(j), 1));
  return sum.to(values[0].scalar_type());
}

}  // namespace

at::Tensor block_mix(std::span<const at::Tensor> values, const at::Tensor& norm, const at::Tensor& proj,
                     double eps) {
  torch::autograd::edge_list edges;
  bool records = false;
  for (const at::Tensor& one : values) {
    edges.push_back(model::edge_to(one));
    records = records || torch::autograd::compute_requires_grad(one);
  }
  for (const at::Tensor* one : {&norm, &proj}) {
    edges.push_back(model::edge_to(*one));
    records = records || torch::autograd::compute_requires_grad(*one);
  }
  std::shared_ptr<BlockMixNode> node;
  if (records) {
    node = std::shared_ptr<BlockMixNode>(new BlockMixNode(), torch::autograd::deleteNode);
    node->set_next_edges(std::move(edges));
    node->values.resize(values.size());
    for (size_t j = 0; j < values.size(); ++j) node->values[j].save(values[j]);
    node->norm.save_weight(norm);
    node->proj.save_weight(proj);
    node->eps = eps;
  }
  at::Tensor y;
  {
    const model::BelowAutograd below;
    y = mixed(values, norm, proj, eps);
  }
  if (node) torch::autograd::set_history(y, node);
  return y;
}

}  // namespace heddle::decoder
