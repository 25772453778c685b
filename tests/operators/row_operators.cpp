// Row-wise operators: activations, norms, RoPE, dropout.
#include "heddle/nn/activation.h"
#include "heddle/nn/dropout.h"
#include "heddle/nn/rms_norm.h"
#include "heddle/nn/rotary.h"
#include "lib/decoder/attention/output_gate.h"
#include "lib/decoder/mamba/group_norm.h"
#include "lib/decoder/recurrence/gated_norm.h"
#include "lib/decoder/xielu/xielu.h"
#include "operators/operator.h"

namespace heddle::tests {
namespace {

using model::Activation;
using Ins = OperatorTensors;
using Check = OperatorCheck;

at::Tensor plain_activation_of(Activation activation, const at::Tensor& x) {
  if (activation == Activation::gelu) return at::gelu(x);
  if (activation == Activation::gelu_tanh) return at::gelu(x, "tanh");
  if (activation == Activation::relu) return at::relu(x);
  return activation == Activation::relu2 ? at::relu(x).square() : x * at::sigmoid(x);
}

constexpr std::pair<Activation, const char*> kEachActivation[] = {{Activation::silu, "silu"},
                                                                  {Activation::gelu, "gelu"},
                                                                  {Activation::gelu_tanh, "gelu_tanh"},
                                                                  {Activation::relu, "relu"},
                                                                  {Activation::relu2, "relu2"}};

Operator activated_operator() {
  Operator out{"activated", {"GateBackward"}, {}};
  for (const auto& [activation, name] : kEachActivation)
    out.cases.push_back(
        {name,
         {{5, 57}},
         [=](const Ins& in, const Ins&) { return Ins{model::activated(activation, in[0])}; },
         [=](const Ins& in, const Ins&) { return Ins{plain_activation_of(activation, in[0])}; }});
  return out;
}

Operator gated_operator() {
  Operator out{"gated", {"GateBackward"}, {}};
  for (const auto& [activation, name] : kEachActivation)
    if (activation != Activation::silu)  // silu is tested as swiglu()
      out.cases.push_back(
          {name,
           {{5, 57}, {5, 57}},
           [=](const Ins& in, const Ins&) { return Ins{model::gated(activation, in[0], in[1])}; },
           [=](const Ins& in, const Ins&) { return Ins{plain_activation_of(activation, in[0]) * in[1]}; }});
  return out;
}

Operator gated_within_operator() {
  Operator out{"gated_within", {"GateWithinBackward"}, {}};
  for (const bool before : {false, true})
    for (const auto& [activation, name] : kEachActivation) {
      constexpr double kLimit = 0.75;
      out.cases.push_back({std::string(name) + (before ? " limited before" : ""),
                           {{5, 57}, {5, 57}},
                           [=](const Ins& in, const Ins&) {
                             return Ins{model::gated_within(kLimit, activation, in[0], in[1], before)};
                           },
                           [=](const Ins& in, const Ins&) {
                             const at::Tensor x = before ? at::clamp(in[0], {}, kLimit) : in[0];
                             const at::Tensor open = plain_activation_of(activation, x);
                             return Ins{(before ? open : at::clamp(open, {}, kLimit)) *
                                        at::clamp(in[1], -kLimit, kLimit)};
                           }});
    }
  return out;
}

Operator swiglu_operator() {
  const OperatorFunction run = [](const Ins& in, const Ins&) { return Ins{model::swiglu(in[0], in[1])}; };
  const OperatorFunction plain = [](const Ins& in, const Ins&) {
    return Ins{in[0] * at::sigmoid(in[0]) * in[1]};
  };
  return {"swiglu",
          {"SwigluBackward"},
          {{"rows", {{5, 57}, {5, 57}}, run, plain}, {"one number", {{1, 1}, {1, 1}}, run, plain}},
          {},
          false,
          3e-2,
          {{"512 x 2816", {{512, 2816}, {512, 2816}}, run}}};
}

Operator situ_operator() {
  Operator out{"gated_by_situ", {"SituBackward"}, {}};
  for (const model::Situ& form : {model::Situ{1.5, 0}, model::Situ{1.5, 2.5}})
    out.cases.push_back(
        {form.bound > 0 ? "bounded up" : "up as it is",
         {{5, 57}, {5, 57}},
         [=](const Ins& in, const Ins&) { return Ins{model::gated_by_situ(form, in[0], in[1])}; },
         [=](const Ins& in, const Ins&) {
           const at::Tensor up = form.bound > 0 ? at::tanh(in[1] / form.bound) * form.bound : in[1];
           return Ins{form.beta * at::tanh(in[0] / form.beta) * at::sigmoid(in[0]) * up};
         }});
  return out;
}

at::Tensor plain_root_norm(const at::Tensor& x, int64_t width, double eps) {
  const at::Tensor rows = x.reshape({-1, width});
  return rows * (rows.square().mean(-1, true) + eps).rsqrt();
}

Operator rms_norm_operator(bool plus_one) {
  const auto case_of = [=](const std::string& name, std::initializer_list<int64_t> x, int64_t width) {
    return OperatorCase{name,
                        {x, {width}},
                        [=](const Ins& in, const Ins&) {
                          return Ins{plus_one ? model::rms_norm_plus_one(in[0], in[1], 1e-2)
                                              : model::rms_norm(in[0], in[1], 1e-2)};
                        },
                        [=](const Ins& in, const Ins&) {
                          const at::Tensor factor = plus_one ? in[1] + 1 : in[1];
                          return Ins{(plain_root_norm(in[0], width, 1e-2) * factor).view(in[0].sizes())};
                        }};
  };
  return {plus_one ? "rms_norm_plus_one" : "rms_norm",
          {"RmsNormBackward"},
          {case_of("rows", {6, 40}, 40), case_of("one row", {1, 3}, 3), case_of("heads", {5, 72}, 24)},
          {},
          false,
          3e-2,
          {case_of("512 x 1024", {512, 1024}, 1024)}};
}

Operator layer_norm_operator() {
  const OperatorFunction run = [](const Ins& in, const Ins&) {
    return Ins{model::layer_norm(in[0], in.size() > 1 ? in[1] : at::Tensor(),
                                 in.size() > 2 ? in[2] : at::Tensor(), 1e-2)};
  };
  const OperatorFunction plain = [](const Ins& in, const Ins&) {
    const at::Tensor centred = in[0] - in[0].mean(-1, true);
    at::Tensor y = centred * (centred.square().mean(-1, true) + 1e-2).rsqrt();
    if (in.size() > 1) y = y * in[1];
    return Ins{in.size() > 2 ? y + in[2] : y};
  };
  return {"layer_norm",
          {"LayerNormBackward"},
          {{"with a bias", {{6, 40}, {40}, {40}}, run, plain},
           {"without a bias", {{5, 7}, {7}}, run, plain},
           {"without a weight", {{4, 6}}, run, plain}}};
}

Operator gated_norm_operator() {
  Operator out{"gated_norm", {"GatedNormBackward"}, {}};
  for (const decoder::GatedNormForm& form :
       {decoder::GatedNormForm{1e-2}, decoder::GatedNormForm{1e-2, 2, true, false}}) {
    const int64_t group = form.group == 0 ? 6 : form.group;
    out.cases.push_back(
        {form.group == 0 ? "heads" : "groups of heads",
         {{7, 18}, {7, 18}, {6}},
         [=](const Ins& in, const Ins&) { return Ins{decoder::gated_norm(in[0], in[1], in[2], form)}; },
         [=](const Ins& in, const Ins&) {
           const at::Tensor open = form.sigmoid ? in[1].sigmoid() : in[1] * in[1].sigmoid();
           const at::Tensor normal = plain_root_norm(in[0], group, 1e-2).view({7, 3, 6});
           return Ins{(normal * in[2]).view({7, 18}) * open};
         }});
  }
  return out;
}

Operator group_norm_operator() {
  return {"gated_group_norm",
          {"GatedGroupNormBackward"},
          {{"groups of five",
            {{7, 15}, {7, 15}, {15}},
            [](const Ins& in, const Ins&) {
              return Ins{decoder::gated_group_norm(in[0], in[1], in[2], 5, 1e-2)};
            },
            [](const Ins& in, const Ins&) {
              const at::Tensor gated = in[0] * in[1] * in[1].sigmoid();
              return Ins{plain_root_norm(gated, 5, 1e-2).view({7, 15}) * in[2]};
            }}}};
}

Operator xielu_operator() {
  return {"xielu",
          {"XieluBackward"},
          {{"rows",
            {{6, 14}, {1}, {1}},
            [](const Ins& in, const Ins& constants) {
              return Ins{decoder::xielu(in[0], in[1], in[2], constants[0], constants[1])};
            },
            [](const Ins& in, const Ins&) {
              const at::Tensor below = in[0].clamp_max(-0.125).expm1() - in[0];
              const at::Tensor curve = at::where(in[0] > 0, in[1].exp().log1p() * in[0].square(),
                                                 (in[2].exp().log1p() + 0.5) * below);
              return Ins{curve + in[0] * 0.5};
            },
            {at::full({}, 0.5), at::full({}, -0.125)}}}};
}

Operator split_gate_operator() {
  return {"split_gate",
          {"SplitGateBackward"},
          {{"three heads",
            {{6, 24}},
            [](const Ins& in, const Ins&) {
              const auto [q, gate] = decoder::split_gate(in[0], 4);
              return Ins{q, gate};
            },
            [](const Ins& in, const Ins&) {
              const at::Tensor parts = in[0].view({6, 3, 2, 4});
              return Ins{parts.select(2, 0).reshape({6, 12}), parts.select(2, 1).reshape({6, 12})};
            }}}};
}

Operator gated_output_operator() {
  using Function = decoder::OutputGate::Function;
  Operator out{"gated_output", {"OutputGateBackward"}, {}};
  for (const Function function : {Function::sigmoid, Function::softplus})
    for (const int64_t gates : {12, 3})
      out.cases.push_back(
          {std::string(function == Function::sigmoid ? "sigmoid" : "softplus") +
               (gates == 3 ? " of each head" : ""),
           {{6, 12}, {6, gates}},
           [=](const Ins& in, const Ins&) { return Ins{decoder::gated_output(in[0], in[1], function)}; },
           [=](const Ins& in, const Ins&) {
             const at::Tensor open =
                 function == Function::sigmoid ? in[1].sigmoid() : at::log(1 + at::exp(in[1]));
             return Ins{in[0] * open.repeat_interleave(12 / gates, 1)};
           }});
  return out;
}

// Rotates one element at a time, so that the reference shares no layout with the code under test.
at::Tensor rotated_by_pairs(const at::Tensor& x, const Ins& angles, const model::HeadPart& part) {
  const int64_t half = angles[0].size(1), dim = part.head_dim > 0 ? part.head_dim : 2 * half;
  std::vector<at::Tensor> columns = at::unbind(x, 1);
  for (int64_t begin = part.first; begin < x.size(1); begin += dim)
    for (int64_t i = 0; i < half; ++i) {
      const int64_t low = begin + (part.interleaved ? 2 * i : i), high = low + (part.interleaved ? 1 : half);
      const at::Tensor a = columns[low], b = columns[high], c = angles[0].select(1, i),
                       s = angles[1].select(1, i);
      columns[low] = a * c - b * s;
      columns[high] = b * c + a * s;
    }
  return at::stack(columns, 1);
}

Operator rotate_operator() {
  Operator out{"rotate", {"RotaryBackward"}, {}};
  const at::Tensor angle = at::randn({4, 3}) * 3;
  const Ins angles = {angle.cos() * 1.3, angle.sin() * 1.3};
  for (const bool interleaved : {false, true})
    for (const auto& [head_dim, first] : {std::pair<int64_t, int64_t>{6, 0}, {10, 0}, {10, 4}, {11, 2}}) {
      const model::HeadPart part{head_dim, first, interleaved};
      const auto run = [=](const Ins& in, const Ins& constants) {
        const model::RotaryAngles given{constants[0], constants[1], part};
        if (in.size() == 1) return Ins{model::rotate(in[0], given)};
        const auto [q, k] = model::rotate(in[0], in[1], given);
        return Ins{q, k};
      };
      const auto plain = [=](const Ins& in, const Ins& constants) {
        Ins all;
        for (const at::Tensor& x : in) all.push_back(rotated_by_pairs(x, constants, part));
        return all;
      };
      const std::string name =
          std::to_string(first) + " of " + std::to_string(head_dim) + (interleaved ? " interleaved" : "");
      out.cases.push_back({name, {{4, 2 * head_dim}}, run, plain, angles});
      out.cases.push_back({name + ", q and k", {{4, 2 * head_dim}, {4, head_dim}}, run, plain, angles});
    }
  return out;
}

Operator dropout_operator() {
  Operator out{"dropout", {"DropoutBackward"}, {}};
  const at::Tensor keys = at::arange(6, at::kLong) * 7 + 3;
  for (const double p : {0.0, 0.3})
    out.cases.push_back(
        {p == 0 ? "of nothing" : "of three tenths",
         {{2, 3, 11}},
         [=](const Ins& in, const Ins& constants) { return Ins{model::dropout(in[0], constants[0], p, 5)}; },
         [=](const Ins& in, const Ins& constants) {
           const at::Tensor kept = model::uniform_draws(constants[0], 11, 5).ge(p).view({2, 3, 11});
           return Ins{in[0] * kept / (1 - p)};
         },
         {keys}});
  return out;
}

}  // namespace

std::vector<Operator> row_operators() {
  return {activated_operator(),    gated_operator(),         gated_within_operator(), swiglu_operator(),
          situ_operator(),         rms_norm_operator(false), rms_norm_operator(true), layer_norm_operator(),
          gated_norm_operator(),   group_norm_operator(),    xielu_operator(),        split_gate_operator(),
          gated_output_operator(), rotate_operator(),        dropout_operator()};
}

}  // namespace heddle::tests
