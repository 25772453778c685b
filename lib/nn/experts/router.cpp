// The router: a product, the choice, and auxiliary losses on the weights.
#include "heddle/nn/router.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>

#include <optional>
#include <utility>

#include "core/model/parameter.h"
#include "heddle/base/error.h"
#include "heddle/model/region.h"
#include "heddle/nn/linear.h"

namespace heddle {
namespace {

using model::BalanceLoss;

const Init kZeros{Init::Kind::zeros, 0.0};

}  // namespace

Router::Router(RouterConfig config, const Init& init, const at::TensorOptions& options)
    : weight(model::make_parameter({config.experts, config.hidden}, init, options)),
      config_(std::move(config)),
      load_(config_.group + "/load_" + std::to_string(config_.layer), Combine::sum, {"dp_cp"},
            config_.experts, Shown::nowhere),
      balance_(config_.group + "/aux_loss", LossDivisor::microbatches),
      z_(config_.group + "/z_loss", LossDivisor::microbatches) {
  const model::RouterRule& rule = config_.rule;
  if (rule.top_k < 1 || rule.top_k > config_.experts)
    throw Error(ErrorCode::config, "router",
                "a token chooses " + std::to_string(rule.top_k) + " of " + std::to_string(config_.experts) +
                    " experts",
                "give a top-k from 1 to the number of experts");
  add_slot("weight", weight, init);
  if (config_.bias) {
    bias = model::make_parameter({config_.experts}, kZeros, options);
    add_slot("bias", bias, kZeros);
  }
  add_side_output(load_);
  if (config_.balance.form != BalanceLoss::Form::none) add_side_output(balance_);
  if (config_.z_loss != 0) add_side_output(z_);
}

at::Tensor Router::logits(const at::Tensor& x, const Batch& batch) {
  std::optional<model::Autocast::Scope> scope;
  if (config_.in_fp32) scope.emplace(&fp32_);
  const at::Tensor out = model::linear(x, weight, bias, batch.weight_gradients);
  return out.scalar_type() == at::kDouble ? out : out.to(at::kFloat);
}

model::Routing Router::route(const at::Tensor& x, const Batch& batch) {
  const at::Tensor of_experts = logits(x, batch);
  model::Scored scored = config_.in_turn ? model::score_in_turn(of_experts, config_.rule)
                                         : model::score_experts(of_experts, {}, config_.rule);
  at::Tensor weights = scored.weights;
  if (!config_.in_turn && config_.z_loss != 0)
    weights = z_.add(weights, model::z_loss(of_experts, config_.z_loss), batch);
  return {scored.experts, balanced(std::move(weights), scored, batch)};
}

at::Tensor Router::balanced(at::Tensor weights, const model::Scored& scored, const Batch& batch) {
  // Run again for the values of the backward: the losses' nodes of the first time need none.
  if (const model::Region* region = model::Region::active(); region != nullptr && !region->drops_values())
    return weights;
  const bool with_loss = config_.balance.form != BalanceLoss::Form::none && !config_.in_turn;
  if (batch.side_outputs == nullptr && !(with_loss && weights.requires_grad())) return weights;
  const int64_t rows = config_.balance.form == BalanceLoss::Form::sequence ? batch.tokens.size(0) : 1;
  const at::Tensor counts = model::count_choices(scored.experts, rows, config_.experts);
  load_.add(rows == 1 ? counts : counts.sum(0), batch);
  if (!with_loss) return weights;
  const at::Tensor loss = balance_loss(scored, counts, rows);
  return loss.defined() ? balance_.add(weights, loss, batch) : weights;
}

at::Tensor Router::balance_loss(const model::Scored& scored, const at::Tensor& counts, int64_t rows) {
  const BalanceLoss& balance = config_.balance;
  const int64_t tokens = scored.scores.size(0) / rows;
  at::Tensor all = counts;
  at::Tensor of_tokens = at::full({rows, 1}, tokens, counts.options());
  if (!total.empty()) {
    const auto own = [](at::Tensor given) { return given; };
    const at::Tensor sums = total.call(own, at::cat({counts, of_tokens}, 1));
    all = sums.narrow(1, 0, config_.experts);
    of_tokens = sums.narrow(1, config_.experts, 1);
  }
  if (balance.form == BalanceLoss::Form::model)
    return config_.layers->add(config_.place, all.select(0, 0), of_tokens, scored.scores);
  // E / (k T) n_e of each row, times 1 / T of the mean score.
  const double factor = balance.coefficient * static_cast<double>(config_.experts) /
                        static_cast<double>(config_.rule.top_k * rows);
  return model::weighted_sum(scored.scores, all * factor / of_tokens.square());
}

at::Tensor Router::forward(at::Tensor, const Batch&) {
  throw Error(ErrorCode::internal, "router", "it gives experts and weights, not one tensor",
              "call route(), not call()");
}

}  // namespace heddle
