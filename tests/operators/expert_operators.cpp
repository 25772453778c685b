// Mixture-of-experts operators: routers, experts, balancing losses, jitter, a layer with a shared expert.
#include <cmath>
#include <memory>

#include "heddle/nn/experts.h"
#include "heddle/nn/router.h"
#include "operators/operator.h"

namespace heddle::tests {
namespace {

using model::ExpertActivation;
using model::RouterRule;
using Ins = OperatorTensors;
using Check = OperatorCheck;
using Kind = ExpertActivation::Kind;
using Score = RouterRule::Score;

at::Tensor plain_router_scores(const at::Tensor& logits, Score score) {
  if (score == Score::sigmoid) return 1 / (1 + at::exp(-logits));
  if (score == Score::sqrt_softplus) return at::log(1 + at::exp(logits)).sqrt();
  const at::Tensor e = at::exp(logits);
  return e / e.sum(1, true);
}

// Returns the chosen experts, their weights and all scores.
Ins plain_scored(const at::Tensor& logits, const at::Tensor& bias, const RouterRule& rule) {
  const at::Tensor scores = plain_router_scores(logits, rule.score);
  const bool after = rule.score == Score::softmax_after_topk;
  at::Tensor choosing = bias.defined() ? scores + bias : scores;
  if (rule.groups > 1) {
    const at::Tensor groups = choosing.view({logits.size(0), rule.groups, -1});
    const at::Tensor worth = std::get<0>(at::topk(groups, rule.group_best, -1)).sum(-1);
    const at::Tensor best = std::get<1>(at::topk(worth, rule.top_groups, -1));
    const at::Tensor open = at::zeros_like(worth).scatter(1, best, 1).unsqueeze(-1).expand(groups.sizes());
    choosing = choosing.masked_fill(open.reshape(choosing.sizes()).eq(0), -1e30);
  }
  const at::Tensor chosen = std::get<1>(at::topk(choosing, rule.top_k, 1));
  at::Tensor weights = at::gather(after ? logits : scores, 1, chosen);
  if (after) weights = plain_router_scores(weights, rule.score);
  if (rule.normalise && rule.top_k > 1) weights = weights / weights.sum(1, true);
  return {chosen, weights * rule.scale, rule.normalise ? scores / scores.sum(1, true) : scores};
}

Operator score_experts_operator() {
  Operator out{"score_experts", {"RouterBackward"}, {}};
  const auto add = [&](const std::string& name, const RouterRule& rule, const at::Tensor& bias,
                       bool weights_alone) {
    const auto part = [=](Ins all) { return weights_alone ? Ins{all[0], all[1]} : all; };
    out.cases.push_back(
        {name,
         {OperatorInput({9, 6}).wide()},
         [=](const Ins& in, const Ins& constants) {
           const model::Scored scored = model::score_experts(in[0], constants[0], rule);
           return part({scored.experts, scored.weights, scored.scores});
         },
         [=](const Ins& in, const Ins& constants) { return part(plain_scored(in[0], constants[0], rule)); },
         {bias}});
  };
  const std::pair<Score, const char*> scores[] = {{Score::softmax, "softmax"},
                                                  {Score::softmax_after_topk, "softmax after top-k"},
                                                  {Score::sigmoid, "sigmoid"},
                                                  {Score::sqrt_softplus, "sqrt softplus"}};
  for (const auto& [score, name] : scores)
    for (const bool normalise : {false, true})
      for (const int64_t k : {1, 3, 6})
        for (const bool alone : {false, true})
          add(std::string(name) + ", top " + std::to_string(k) + (normalise ? ", normalised" : "") +
                  (alone ? ", weights alone" : ""),
              {.score = score, .top_k = k, .normalise = normalise, .scale = 1.5}, {}, alone);
  add("bias", {.score = Score::sigmoid, .top_k = 2, .normalise = true}, at::randn({6}), false);
  add("groups", {.score = Score::sigmoid, .top_k = 2, .groups = 3, .top_groups = 2, .group_best = 2},
      at::randn({6}), false);
  return out;
}

at::Tensor plain_expert_activation(const ExpertActivation& how, const at::Tensor& hidden) {
  if (how.kind == Kind::relu2) return at::relu(hidden).square();
  const int64_t width = hidden.size(1) / 2;
  const at::Tensor pairs =
      how.interleaved ? hidden.view({-1, width, 2}).transpose(1, 2) : hidden.view({-1, 2, width});
  const at::Tensor gate = pairs.select(1, 0), up = pairs.select(1, 1);
  if (how.kind == Kind::swiglu) return gate * at::sigmoid(gate) * up;
  if (how.kind == Kind::geglu) return at::gelu(gate) * up;
  if (how.kind == Kind::geglu_tanh) return at::gelu(gate, "tanh") * up;
  if (how.kind == Kind::situ) {
    const at::Tensor bounded = at::tanh(up / how.situ.bound) * how.situ.bound;
    return how.situ.beta * at::tanh(gate / how.situ.beta) * at::sigmoid(gate) * bounded;
  }
  const at::Tensor within = at::clamp(up, -how.limit, how.limit);
  if (how.kind == Kind::limited_swiglu) return at::clamp(gate * at::sigmoid(gate), {}, how.limit) * within;
  const at::Tensor below = at::clamp(gate, {}, how.limit);
  return below * at::sigmoid(below * how.alpha) * (within + how.shift);
}

struct ExpertShape {
  std::string name;
  int64_t tokens, top_k, experts, hidden, width;
  ExpertActivation how = {};
  bool biases = false, adapters = false;
  int64_t held = 0;   // experts on this rank; 0: all
  int64_t kept = -1;  // tokens with experts; -1: all
};

constexpr double kAdapterScale = 0.7;

// in: x, the routing weights, gate_up, down, then both biases or the four adapter weights.
model::ExpertParameters parameters_of_case(const ExpertShape& of, const Ins& in) {
  model::ExpertParameters out{in[2], in[3]};
  if (of.biases) out.gate_up_bias = in[4], out.down_bias = in[5], out.bias_share = 0.5;
  if (of.adapters) out.adapters = {in[4], in[5], in[6], in[7], kAdapterScale};
  return out;
}

// Reference: one expert after the other.
at::Tensor plain_experts(const ExpertShape& of, const Ins& in, const at::Tensor& chosen) {
  at::Tensor y = at::zeros_like(in[0]);
  for (int64_t e = 0; e < in[2].size(0); ++e) {
    at::Tensor gate_up = in[2][e], down = in[3][e];
    if (of.adapters) {
      gate_up = gate_up + kAdapterScale * in[5][e].matmul(in[4][e]);
      down = down + kAdapterScale * in[7][e].matmul(in[6][e]);
    }
    const at::Tensor hidden = at::linear(in[0], gate_up, of.biases ? in[4][e] : at::Tensor());
    const at::Tensor active = plain_expert_activation(of.how, hidden);
    const at::Tensor each = at::linear(active, down, of.biases ? in[5][e] * 0.5 : at::Tensor());
    y = y + each * (in[1] * chosen.eq(e)).sum(1, true);
  }
  return y;
}

OperatorCase expert_case(const ExpertShape& of) {
  const int64_t held = of.held > 0 ? of.held : of.experts, columns = of.how.columns() * of.width;
  OperatorCase out{
      of.name,
      {{of.tokens, of.hidden},
       OperatorInput({of.tokens, of.top_k}).wide(),
       {held, columns, of.hidden},
       {held, of.hidden, of.width}},
      [of](const Ins& in, const Ins& constants) {
        return Ins{model::experts(in[0], {constants[0], in[1]}, parameters_of_case(of, in), of.how)};
      },
      [of](const Ins& in, const Ins& constants) { return Ins{plain_experts(of, in, constants[0])}; }};
  const std::vector<OperatorInput> biases = {{held, columns}, {held, of.hidden}};
  if (of.biases) out.inputs.insert(out.inputs.end(), biases.begin(), biases.end());
  const std::vector<OperatorInput> adapters = {
      {held, 2, of.hidden}, {held, columns, 2}, {held, 2, of.width}, {held, of.hidden, 2}};
  if (of.adapters) out.inputs.insert(out.inputs.end(), adapters.begin(), adapters.end());
  // On meta every choice counts as assigned to an expert.
  if (!of.adapters)
    out.products = 2.0 * static_cast<double>(of.tokens * of.top_k * of.hidden * (columns + of.width));
  at::Tensor chosen = std::get<1>(at::topk(at::rand({of.tokens, of.experts}), of.top_k, 1));
  chosen = chosen.masked_fill(chosen.ge(held), -1);
  if (of.kept >= 0) chosen.narrow(0, of.kept, of.tokens - of.kept).fill_(-1);
  out.constants = {chosen};
  if (of.how.kind == Kind::clamped_swiglu || of.how.kind == Kind::limited_swiglu)
    out.skipped = {{Check::bfloat16, "a rounded gate may cross the limit, where the gradient jumps"}};
  return out;
}

Operator experts_operator() {
  Operator out{"experts", {"ExpertsBackward"}, {}};
  const std::pair<Kind, const char*> kinds[] = {{Kind::swiglu, "swiglu"},
                                                {Kind::limited_swiglu, "limited swiglu"},
                                                {Kind::clamped_swiglu, "clamped swiglu"},
                                                {Kind::geglu, "geglu"},
                                                {Kind::geglu_tanh, "geglu tanh"},
                                                {Kind::relu2, "relu2"},
                                                {Kind::situ, "situ"}};
  for (const auto& [kind, name] : kinds)
    for (const bool biases : {false, true})
      for (const bool interleaved : {false, true})
        out.cases.push_back(expert_case(
            {std::string(name) + (biases ? " with biases" : "") + (interleaved ? ", interleaved" : ""),
             11,
             2,
             4,
             6,
             5,
             {kind, 1.702, 2.5, interleaved, {1.5, 2.5}},
             biases}));
  for (const ExpertShape& of :
       {ExpertShape{"top 1", 13, 1, 5, 6, 5}, ExpertShape{"all of eight", 7, 8, 8, 6, 5},
        ExpertShape{"one token", 1, 2, 3, 6, 5}, ExpertShape{"experts without tokens", 3, 2, 16, 20, 12},
        ExpertShape{"experts of other ranks", 10, 3, 6, 6, 5, {}, true, false, 4},
        ExpertShape{"some tokens without experts", 9, 2, 3, 6, 5, {}, false, false, 0, 4},
        ExpertShape{"no experts here", 4, 2, 3, 6, 5, {}, true, false, 0, 0},
        ExpertShape{"odd sizes", 37, 1, 5, 33, 7}, ExpertShape{"adapters", 11, 2, 4, 6, 5, {}, false, true}})
    out.cases.push_back(expert_case(of));
  out.speed = {expert_case({"256 tokens, 2 of 8 experts of 256 x 512", 256, 2, 8, 256, 512})};
  return out;
}

Operator router_operator() {
  RouterConfig config;
  config.hidden = 5, config.experts = 6, config.bias = true, config.norm_eps = 1e-2,
  config.expert_scale = true;
  config.rule = {.score = Score::softmax, .top_k = 3, .normalise = true};
  const auto run = [config](const Ins& in, const Ins&) {
    Router router(config, {}, in[0].options().requires_grad(false));
    router.weight = in[1], router.bias = in[2], router.scale = in[3], router.expert_scale = in[4];
    const model::Routing routing = router.route(in[0], {});
    return Ins{routing.experts, routing.weights};
  };
  const auto plain = [config](const Ins& in, const Ins&) {
    const at::Tensor normal = in[0] * (in[0].square().mean(-1, true) + 1e-2).rsqrt();
    const at::Tensor logits = at::linear(normal * in[3] / std::sqrt(5.0), in[1], in[2]);
    const Ins scored = plain_scored(logits, {}, config.rule);
    return Ins{scored[0], scored[1] * at::index_select(in[4], 0, scored[0].flatten()).view({7, 3})};
  };
  return {"Router",
          {"RouterBackward", "ExpertScaleBackward"},
          {{"norm and scales", {{7, 5}, {6, 5}, {6}, {5}, {6}}, run, plain}},
          {{Check::bfloat16, "rounded logits may choose other experts; routers compute in float32"}}};
}

Operator moe_layer_operator() {
  const auto run = [](const Ins& in, const Ins&) {
    const at::TensorOptions options = in[0].options().requires_grad(false);
    RouterConfig config;
    config.hidden = 6, config.experts = 5, config.rule.top_k = 5;
    MoeLayer layer(config, {5, 6, 7}, {"gate_up", "down"}, {}, options);
    auto shared = std::make_unique<Linear>(6, 6, Linear::Bias::none, Init(), options);
    shared->weight = in[4];
    layer.add_shared("shared", std::move(shared));
    layer.add_shared_gate("shared_gate", {}, options);
    layer.router().weight = in[1];
    layer.experts().gate_up = in[2].view({5, 2, 7, 6}), layer.experts().down = in[3];
    dynamic_cast<Linear&>(*layer.children().back().second).weight = in[5];
    return Ins{layer.call(in[0], {})};
  };
  const auto plain = [](const Ins& in, const Ins&) {
    const at::Tensor weights = plain_router_scores(at::linear(in[0], in[1]), Score::softmax);
    const ExpertShape of{"", 9, 5, 5, 6, 7};
    const at::Tensor each = at::arange(5).expand({9, 5});
    const at::Tensor shared = at::linear(in[0], in[4]) * at::sigmoid(at::linear(in[0], in[5]));
    return Ins{plain_experts(of, {in[0], weights, in[2], in[3]}, each) + shared};
  };
  return {
      "MoeLayer",
      {"SharedGateBackward", "ExpertsBackward", "RouterBackward"},
      {{"shared expert with a gate", {{9, 6}, {5, 6}, {5, 14, 6}, {5, 6, 7}, {6, 6}, {1, 6}}, run, plain}}};
}

at::Tensor padding_of_rows() {
  at::Tensor padding = at::zeros({10}, at::kBool);
  padding.narrow(0, 8, 2).fill_(true);
  return padding;
}

at::Tensor without_padding(const at::Tensor& x, const at::Tensor& padding) {
  return padding.defined() ? x.masked_fill(padding.view({-1, 1}), 0) : x;
}

Operator weighted_sum_operator() {
  Operator out{"weighted_sum", {"BalanceLossBackward"}, {}};
  for (const bool padded : {false, true})
    out.cases.push_back(
        {padded ? "padding" : "two rows",
         {OperatorInput({10, 4}).wide()},
         [](const Ins& in, const Ins& constants) {
           return Ins{model::weighted_sum(in[0], constants[0].to(in[0].scalar_type()), constants[1])};
         },
         [](const Ins& in, const Ins& constants) {
           const at::Tensor rows = without_padding(in[0], constants[1]).view({2, 5, 4});
           return Ins{(rows * constants[0].unsqueeze(1)).sum()};
         },
         {at::rand({2, 4}), padded ? padding_of_rows() : at::Tensor()}});
  return out;
}

Operator z_loss_operator() {
  Operator out{"z_loss", {"RouterZLossBackward"}, {}};
  for (const bool padded : {false, true})
    out.cases.push_back(
        {padded ? "padding" : "all tokens",
         {OperatorInput({10, 4}).wide()},
         [](const Ins& in, const Ins& constants) {
           return Ins{model::z_loss(in[0], 0.1, constants[0], constants[1])};
         },
         [padded](const Ins& in, const Ins& constants) {
           const at::Tensor squares = at::logsumexp(in[0], -1, true).square();
           return Ins{without_padding(squares, constants[1]).sum() * (0.1 / (padded ? 8 : 10))};
         },
         {padded ? at::full({1}, 8.F) : at::Tensor(), padded ? padding_of_rows() : at::Tensor()}});
  return out;
}

Operator layer_balance_operator() {
  const auto run = [](const Ins& in, const Ins& constants) {
    model::LayerBalance balance(2, 0.1);
    balance.add(0, constants[0].to(in[0].scalar_type()), constants[1].to(in[0].scalar_type()), in[0]);
    return Ins{balance.add(1, constants[0].to(in[0].scalar_type()), constants[1].to(in[0].scalar_type()),
                           in[1], constants[2])};
  };
  const auto plain = [](const Ins& in, const Ins& constants) {
    const at::Tensor sums = in[0].sum(0) + without_padding(in[1], constants[2]).sum(0);
    return Ins{(sums * constants[0] * 2).sum() * (0.1 * 4 / (20.0 * 20.0))};
  };
  return {"LayerBalance",
          {"LayerBalanceBackward", "ColumnSumBackward"},
          {{"two layers",
            {OperatorInput({10, 4}).wide(), OperatorInput({10, 4}).wide()},
            run,
            plain,
            {at::tensor({7.F, 3.F, 6.F, 4.F}), at::full({1}, 10.F), padding_of_rows()}}}};
}

Operator jittered_operator() {
  const auto batch_of = [](const Ins& constants) {
    Batch batch;
    batch.tokens = constants[0];
    return batch;
  };
  return {"jittered",
          {"JitterBackward"},
          {{"two rows",
            {{10, 7}},
            [=](const Ins& in, const Ins& constants) {
              return Ins{model::jittered(in[0], 0.1, 2, batch_of(constants))};
            },
            [=](const Ins& in, const Ins& constants) {
              const at::Tensor factors =
                  model::jittered(at::ones({10, 7}, at::kDouble), 0.1, 2, batch_of(constants));
              return Ins{in[0] * factors};
            },
            {at::arange(10).view({2, 5})}}}};
}

}  // namespace

std::vector<Operator> expert_operators() {
  return {score_experts_operator(), experts_operator(), router_operator(),        moe_layer_operator(),
          weighted_sum_operator(),  z_loss_operator(),  layer_balance_operator(), jittered_operator()};
}

}  // namespace heddle::tests
