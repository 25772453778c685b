// The choice, and the derivative of each score function.
#include "heddle/nn/router.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros_like.h>

#include <limits>
#include <memory>
#include <utility>

#include "heddle/model/autograd_node.h"
#include "lib/nn/cpu/expert_choice_cpu.h"

namespace heddle::model {
namespace {

using Score = RouterRule::Score;

at::Tensor scores_of(const at::Tensor& logits, Score score) {
  switch (score) {
    case Score::sigmoid:
      return at::sigmoid(logits);
    case Score::sqrt_softplus:
      return at::sqrt(at::softplus(logits));
    default:
      return at::softmax(logits, -1);
  }
}

// The gradient of the logits from that of the scores.
at::Tensor back_through(const at::Tensor& d_scores, const at::Tensor& scores, const at::Tensor& logits,
                        Score score) {
  switch (score) {
    case Score::sigmoid:
      return d_scores * scores * (1 - scores);
    case Score::sqrt_softplus:
      return d_scores * at::sigmoid(logits) / (2 * scores);
    default:
      return (d_scores - (d_scores * scores).sum(-1, true)) * scores;
  }
}

// Scores of experts outside of the best groups become -inf.
at::Tensor within_groups(const at::Tensor& scores, const RouterRule& rule) {
  if (rule.groups <= 1 || rule.top_groups == rule.groups) return scores;
  const at::Tensor by_group = scores.view({scores.size(0), rule.groups, -1});
  const at::Tensor worth = rule.group_best == 1
                               ? at::amax(by_group, -1)
                               : std::get<0>(at::topk(by_group, rule.group_best, -1)).sum(-1);
  const at::Tensor best = std::get<1>(at::topk(worth, rule.top_groups, -1));
  const at::Tensor open = at::zeros_like(worth).scatter_(1, best, 1);
  return by_group.masked_fill(open.eq(0).unsqueeze(-1), -std::numeric_limits<double>::infinity())
      .view(scores.sizes());
}

at::Tensor share_of_sum(const at::Tensor& values) {
  return values / (values.sum(-1, true) + kTinySum);
}

// The gradient of v from that of v / sum(v).
at::Tensor back_through_share(const at::Tensor& gradient, const at::Tensor& values) {
  const at::Tensor sum = values.sum(-1, true) + kTinySum;
  return (gradient - (gradient * values).sum(-1, true) / sum) / sum;
}

// Edge: the logits.
struct ScoreNode final : LayerNode {
  ScoreNode() : LayerNode("RouterBackward") {}
  Saved logits, chosen;
  RouterRule rule;

  Gradients backward(Gradients&& gradients) override {
    const at::Tensor given = logits.unpack(), scores = scores_of(given, rule.score);
    const at::Tensor experts = chosen.unpack();
    if (!gradients[1].defined() && gradients[0].defined() && has_choice_kernel(scores, rule))
      return {choice_backward_cpu(gradients[0].contiguous(), scores, experts, rule)};
    at::Tensor d_scores = gradients[1].defined() ? of_all(gradients[1], scores) : at::zeros_like(scores);
    if (!gradients[0].defined()) return {back_through(d_scores, scores, given, rule.score)};
    const at::Tensor d_weights = gradients[0] * rule.scale;
    if (rule.score != Score::softmax_after_topk) {
      d_scores = d_scores.scatter_add(1, experts, of_chosen(d_weights, at::gather(scores, 1, experts)));
      return {back_through(d_scores, scores, given, rule.score)};
    }
    const at::Tensor weights = at::softmax(at::gather(given, 1, experts), -1);
    const at::Tensor direct = back_through(of_chosen(d_weights, weights), weights, {}, Score::softmax);
    return {back_through(d_scores, scores, given, rule.score).scatter_add_(1, experts, direct)};
  }
  void release_variables() override {
    logits.reset();
    chosen.reset();
  }

 private:
  at::Tensor of_chosen(const at::Tensor& gradient, const at::Tensor& values) const {
    return rule.normalise && rule.top_k > 1 ? back_through_share(gradient, values) : gradient;
  }
  at::Tensor of_all(const at::Tensor& gradient, const at::Tensor& scores) const {
    return rule.normalise ? back_through_share(gradient, scores) : gradient;
  }
};

// The experts' weights, [tokens, k].
at::Tensor weights_of(const at::Tensor& experts, const at::Tensor& logits, const at::Tensor& scores,
                      const RouterRule& rule) {
  const bool after = rule.score == Score::softmax_after_topk;
  at::Tensor weights = at::gather(after ? logits : scores, 1, experts);
  if (after) weights = at::softmax(weights, -1);
  if (rule.normalise && rule.top_k > 1) weights = share_of_sum(weights);
  return rule.scale != 1 ? weights * rule.scale : weights;
}

Scored score(const at::Tensor& logits, const at::Tensor& bias, const RouterRule& rule,
             const AgreeOnExperts& agree) {
  const at::Tensor scores = scores_of(logits, rule.score);
  Scored out;
  out.scores = rule.normalise ? share_of_sum(scores) : scores;
  if (has_choice_kernel(scores, rule)) {
    choose_cpu(scores, bias.defined() ? bias.to(scores.scalar_type()).contiguous() : bias, rule, out);
    if (!agree) return out;
  } else {
    at::Tensor choosing = rule.score == Score::softmax_after_topk ? logits : scores;
    if (bias.defined()) choosing = choosing + bias;
    out.experts = std::get<1>(at::topk(within_groups(choosing, rule), rule.top_k, -1));
  }
  if (agree) out.experts = agree(out.experts);
  out.weights = weights_of(out.experts, logits, scores, rule);
  return out;
}

}  // namespace

Scored score_experts(const at::Tensor& logits, const at::Tensor& bias, const RouterRule& rule,
                     const AgreeOnExperts& agree) {
  std::shared_ptr<ScoreNode> node;
  if (torch::autograd::compute_requires_grad(logits)) {
    node = make_node<ScoreNode>(logits);
    node->rule = rule;
    node->logits.save(logits);
  }
  Scored out;
  {
    const BelowAutograd below;
    out = score(logits, bias, rule, agree);
  }
  if (!node) return out;
  node->chosen.save(out.experts);
  torch::autograd::set_history(out.weights, node);
  torch::autograd::set_history(out.scores, node);
  return out;
}

Scored score_in_turn(const at::Tensor& logits, const at::Tensor& positions, const RouterRule& rule) {
  const BelowAutograd below;
  const int64_t k = rule.top_k;
  const at::Tensor choices = at::arange(k, logits.options().dtype(at::kLong));
  Scored out;
  out.experts = (positions.unsqueeze(1) * k + choices).remainder(logits.size(1));
  out.scores = at::full_like(logits, 1.0 / static_cast<double>(logits.size(1)));
  out.weights = at::full_like(logits, 1.0 / static_cast<double>(k)).narrow(1, 0, k).contiguous();
  return out;
}

}  // namespace heddle::model
