// The router: a product, the choice, and auxiliary losses on the weights.
#include "heddle/nn/router.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gather.h>

#include <cmath>
#include <optional>
#include <utility>

#include "core/model/parameter.h"
#include "heddle/base/error.h"
#include "heddle/mesh/device_mesh.h"
#include "heddle/model/autograd_node.h"
#include "heddle/model/region.h"
#include "heddle/nn/linear.h"
#include "heddle/nn/rms_norm.h"
#include "lib/nn/experts/expert_scale.h"

namespace heddle {
namespace {

using model::BalanceLoss;

const Init kZeros{Init::Kind::zeros, 0.0}, kOnes{Init::Kind::ones, 0.0};
// std is the number of experts.
const Init::Function kInTurn = [](const InitElement& at) {
  return std::fmod(static_cast<double>(at.index[0] * at.shape[1] + at.index[1]), at.std);
};
constexpr const char* kCorrection = "e_score_correction_bias";

[[noreturn]] void refuse(const std::string& message, const std::string& hint) {
  throw Error(ErrorCode::config, "router", message, hint);
}

void check_groups(const RouterConfig& config) {
  const model::RouterRule& rule = config.rule;
  const std::string experts = std::to_string(config.experts) + " experts";
  if (rule.groups < 1 || config.experts % rule.groups != 0)
    refuse(experts + " do not divide into " + std::to_string(rule.groups) + " groups",
           "give a number of groups that divides the experts");
  if (rule.top_groups < 1 || rule.top_groups > rule.groups)
    refuse("a token chooses " + std::to_string(rule.top_groups) + " of " + std::to_string(rule.groups) +
               " groups",
           "give a number from 1 to the number of groups");
  const int64_t each = config.experts / rule.groups, within = each * rule.top_groups;
  if (rule.top_k > within)
    refuse("a token chooses " + std::to_string(rule.top_k) + " experts out of " +
               std::to_string(rule.top_groups) + " groups with " + std::to_string(each) + " experts each",
           "choose at most " + std::to_string(within) + " experts, or more groups");
  if (rule.groups > 1 && (rule.group_best < 1 || rule.group_best > each))
    refuse("a group is worth its best " + std::to_string(rule.group_best) + " experts and has " +
               std::to_string(each),
           "give fewer groups");
}

void check(const RouterConfig& config) {
  if (config.rule.top_k < 1 || config.rule.top_k > config.experts)
    refuse("a token chooses " + std::to_string(config.rule.top_k) + " of " + std::to_string(config.experts) +
               " experts",
           "give a top-k from 1 to the number of experts");
  check_groups(config);
}

// [tokens]; undefined: none.
at::Tensor padding_of(const Batch& batch) {
  return batch.padding.defined() ? batch.padding.reshape({-1}) : at::Tensor();
}

}  // namespace

Router::Router(RouterConfig config, const Init& init, const at::TensorOptions& options)
    : weight(model::make_parameter({config.experts, config.hidden}, init, options)),
      config_(std::move(config)),
      load_(config_.group + "/load_" + std::to_string(config_.layer), Combine::sum, {"dp_cp"},
            config_.experts, Shown::nowhere),
      balance_(config_.group + "/aux_loss", LossDivisor::microbatches),
      z_(config_.group + "/z_loss", LossDivisor::microbatches) {
  check(config_);
  add_slot("weight", weight, init);
  if (config_.bias) add_vector("bias", bias, config_.experts, kZeros, options);
  if (config_.norm_eps > 0) add_vector("scale", scale, config_.hidden, kOnes, options);
  if (config_.expert_scale) add_vector("per_expert_scale", expert_scale, config_.experts, kOnes, options);
  if (config_.correction) {
    const auto wide = options.dtype() == at::kDouble ? at::kDouble : at::kFloat;
    correction = model::make_parameter({config_.experts}, kZeros, options.dtype(wide));
    correction.set_requires_grad(false);
    add_slot(kCorrection, correction, kZeros);
    slots().back().compute = wide;
  }
  if (config_.table_tokens > 0) {
    Init in_turn = Init::by(kInTurn, static_cast<double>(config_.experts));
    in_turn.below = config_.experts;
    table =
        model::make_parameter({config_.table_tokens, config_.rule.top_k}, in_turn, options.dtype(at::kLong));
    add_slot("tid2eid", table, in_turn);
    slots().back().compute = at::kLong;
  }
  add_side_output(load_);
  if (config_.balance.form != BalanceLoss::Form::none) add_side_output(balance_);
  if (config_.z_loss != 0) add_side_output(z_);
}

void Router::add_vector(const char* name, at::Tensor& slot, int64_t size, const Init& init,
                        const at::TensorOptions& options) {
  slot = model::make_parameter({size}, init, options);
  add_slot(name, slot, init);
}

// A loss over all layers sums over all layers of a rank.
ModuleTraits Router::traits() const {
  ModuleTraits out{.tokens = TokenUse::each_alone, .role = Role::router};
  if (config_.balance.form == model::BalanceLoss::Form::model)
    out.refuses = {{"pp",
                    "the auxiliary loss over all layers needs all layers on one rank: use "
                    "router_aux_loss_type: layer, or pp_size: 1"}};
  return out;
}

at::Tensor Router::logits(const at::Tensor& x, const Batch& batch) {
  std::optional<model::Autocast::Scope> scope;
  if (config_.in_fp32) scope.emplace(&fp32_);
  const double root = 1 / std::sqrt(static_cast<double>(config_.hidden));
  const at::Tensor given = scale.defined() ? model::rms_norm(x, scale, config_.norm_eps) * root : x;
  const at::Tensor out = model::linear(given, weight, bias, batch.weight_gradients);
  return out.scalar_type() == at::kDouble ? out : out.to(at::kFloat);
}

model::Routing Router::route(const at::Tensor& x, const Batch& batch) {
  const at::Tensor of_experts = logits(x, batch);
  const model::Scored scored = choose(of_experts, batch);
  const at::Tensor weights = with_losses(of_experts, scored, batch);
  if (!expert_scale.defined()) return {scored.experts, weights};
  return {scored.experts, model::scaled_by_expert(weights, scored.experts, expert_scale)};
}

model::Scored Router::choose(const at::Tensor& logits, const Batch& batch) {
  model::AgreeOnExperts agreed;
  if (table.defined()) {
    const at::Tensor rows = batch.tokens.reshape({-1, 1}).expand({-1, table.size(1)});
    agreed = [this, rows](const at::Tensor&) { return at::gather(table, 0, rows); };
  } else if (!agree.empty()) {
    const auto own = [](at::Tensor experts) { return experts; };
    agreed = [this, own](const at::Tensor& experts) { return agree.call(own, experts); };
  }
  model::Scored scored = config_.in_turn
                             ? model::score_in_turn(logits, positions_of(batch).reshape({-1}), config_.rule)
                             : model::score_experts(logits, correction, config_.rule, agreed);
  if (batch.padding.defined()) {
    const model::BelowAutograd below;
    scored.experts = scored.experts.masked_fill(padding_of(batch).unsqueeze(1), -1);
  }
  return scored;
}

at::Tensor Router::with_losses(const at::Tensor& logits, const model::Scored& scored, const Batch& batch) {
  at::Tensor weights = scored.weights;
  // Run again for the values of the backward: the losses' nodes of the first time have their factors, and
  // only the z-loss needs a value.
  const model::Region* region = model::Region::active();
  const bool again = region != nullptr && !region->drops_values();
  const bool counts =
      batch.side_outputs != nullptr || ((balances() || has_z_loss()) && weights.requires_grad());
  Counted all;
  if (counts && !again) all = count(scored, batch);
  const at::Tensor padding = padding_of(batch);
  if (has_z_loss()) {
    const at::Tensor tokens = all.tokens.defined() ? all.tokens.sum() : at::Tensor();
    weights = z_.add(weights, model::z_loss(logits, config_.z_loss, tokens, padding), batch);
  }
  if (!all.choices.defined() || !balances()) return weights;
  const at::Tensor loss = balance_loss(scored, all, padding);
  return loss.defined() ? balance_.add(weights, loss, batch) : weights;
}

// Counts the choices of this rank's tokens, and adds those of ranks that hold other tokens of the same rows.
Router::Counted Router::count(const model::Scored& scored, const Batch& batch) {
  const int64_t rows = config_.balance.form == BalanceLoss::Form::sequence ? batch.tokens.size(0) : 1;
  const at::Tensor counts = model::count_choices(scored.experts, rows, config_.experts);
  load_.add(rows == 1 ? counts : counts.sum(0), batch);
  at::Tensor tokens = at::full({rows, 1}, scored.experts.size(0) / rows, counts.options());
  if (batch.padding.defined()) {
    const model::BelowAutograd below;
    tokens = tokens - batch.padding.reshape({rows, -1}).sum(1, /*keepdim=*/true).to(at::kFloat);
  }
  if (total.empty() || !(balances() || has_z_loss())) return {counts, tokens};
  const auto own = [](at::Tensor given) { return given; };
  const at::Tensor sums = total.call(own, at::cat({counts, tokens}, 1));
  return {sums.narrow(1, 0, config_.experts), sums.narrow(1, config_.experts, 1)};
}

at::Tensor Router::balance_loss(const model::Scored& scored, const Counted& totals,
                                const at::Tensor& padding) {
  const BalanceLoss& balance = config_.balance;
  if (balance.form == BalanceLoss::Form::global && scored.weights.requires_grad())
    return model::weighted_sum(scored.scores, global_factors(totals), padding);
  if (balance.form == BalanceLoss::Form::model)
    return config_.layers->add(config_.place, totals.choices.select(0, 0), totals.tokens, scored.scores,
                               padding);
  // E / (k T) n_e of each row with a text, times 1 / T of the mean score.
  const double factor =
      balance.coefficient * static_cast<double>(config_.experts) / static_cast<double>(config_.rule.top_k);
  const at::Tensor rows = totals.tokens.gt(0).sum().clamp_min(1);
  return model::weighted_sum(scored.scores,
                             totals.choices * factor / (totals.tokens.clamp_min(1).square() * rows), padding);
}

// The shares of the step so far weigh this rank's mean scores. A rank's mean is over the tokens that a rank
// with a text has on average, so that the mean over these ranks is over all tokens.
at::Tensor Router::global_factors(const Counted& totals) {
  const model::BelowAutograd below;
  const at::Tensor now = at::cat({totals.choices, totals.tokens, totals.tokens.gt(0).to(at::kFloat)}, 1);
  if (samples_ != nullptr) samples_->all_reduce(now)->wait();
  so_far_ = so_far_.defined() ? so_far_ + now : now;
  const double factor = config_.balance.coefficient * static_cast<double>(config_.experts) /
                        static_cast<double>(config_.rule.top_k);
  const auto column = [&](const at::Tensor& counts, int64_t of) {
    return counts.narrow(1, config_.experts + of, 1);
  };
  const at::Tensor shares = so_far_.narrow(1, 0, config_.experts) / column(so_far_, 0).clamp_min(1);
  return shares * factor * column(now, 1) / column(now, 0).clamp_min(1);
}

void Router::before_run(const DeviceMesh& mesh) {
  const bool is_global = config_.balance.form == BalanceLoss::Form::global;
  samples_ = is_global && mesh.size(kSampleAxis) > 1 ? &mesh.group(kSampleAxis) : nullptr;
}

bool Router::moves_correction() const {
  return weight.requires_grad() && config_.correction && config_.correction_rate != 0;
}

bool Router::wants_updates() const {
  return moves_correction() || config_.balance.form == BalanceLoss::Form::global;
}

void Router::after_update(const Updated& updated, const DeviceMesh&) {
  so_far_ = at::Tensor();
  if (moves_correction()) move_correction(updated);
}

void Router::move_correction(const Updated& updated) {
  const at::Tensor load = updated.values.find(load_.spec().name);
  const at::Tensor change = (load.mean() - load).sign().mul(config_.correction_rate);
  for (const FrozenPart& part : updated.frozen) {
    if (!part.name.ends_with(kCorrection)) continue;
    const at::Tensor mine = change.narrow(0, part.offset[0], part.tensor.size(0));
    part.tensor.add_(mine.to(part.tensor.options()) * (1 - updated.skipped.to(part.tensor.device())));
  }
}

at::Tensor Router::forward(at::Tensor, const Batch&) {
  throw Error(ErrorCode::internal, "router", "it gives experts and weights, not one tensor",
              "call route(), not call()");
}

}  // namespace heddle
