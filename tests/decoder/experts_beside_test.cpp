// Experts in parallel with an MLP equal plain operators in value and gradients. Keys shared by layers and
// per-layer inputs are passed from unit to unit. Unsupported models are refused.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>

#include "decoder/forms.h"
#include "decoder/plain_decoder.h"
#include "heddle/decoder/family.h"
#include "lib/run/generate/generate.h"
#include "tests/thrown.h"

namespace heddle::tests {
namespace {

using decoder::Attention;
using decoder::Layer;
using decoder::Mlp;

constexpr int64_t kExpertsBeside = 5, kChosen = 2;

decoder::Model beside_model() {
  decoder::Mixture mixture;
  mixture.router.experts = kExpertsBeside, mixture.router.rule.top_k = kChosen;
  mixture.router.rule.normalise = true, mixture.router.expert_scale = true, mixture.router.norm_eps = 1e-6;
  mixture.width = 7, mixture.activation.kind = model::ExpertActivation::Kind::geglu_tanh;
  Layer layer{decoder::Absent(), Mlp{.width = 10}, {}, Layer::Order::both};
  layer.experts_beside = mixture;
  decoder::Model model = base_model();
  model.layers = {layer};
  return model;
}

at::Tensor rms(const at::Tensor& x, const at::Tensor& weight) {
  return x * (x.square().mean(-1, true) + 1e-6).rsqrt() * weight;
}

// Dense reference: every expert computes every token, and the routing weight of unselected experts is 0.
at::Tensor of_experts(const Parameters& all, const std::string& at, const at::Tensor& x) {
  const at::Tensor normal = rms(x, all.at(at + "gate.scale")) / std::sqrt(static_cast<double>(kWidth));
  const at::Tensor scores = at::softmax(at::matmul(normal, all.at(at + "gate.weight").t()), -1);
  const auto [best, chosen] = at::topk(scores, kChosen, -1);
  const at::Tensor weights = at::zeros_like(scores).scatter(1, chosen, best / best.sum(-1, true)) *
                             all.at(at + "gate.per_expert_scale");
  const at::Tensor in = rms(x, all.at(at + "pre_feedforward_layernorm_2.weight"));
  const at::Tensor first = all.at(at + "experts.gate_up_proj"), down = all.at(at + "experts.down_proj");
  at::Tensor sum = at::zeros_like(x);
  for (int64_t e = 0; e < kExpertsBeside; ++e) {
    const at::Tensor gate = at::matmul(in, first[e][0].t()), up = at::matmul(in, first[e][1].t());
    const at::Tensor y = at::matmul(at::gelu(gate, "tanh") * up, down[e].t());
    sum = sum + y * weights.select(1, e).unsqueeze(1);
  }
  return sum;
}

at::Tensor plain_layer(const Parameters& all, const at::Tensor& x) {
  const std::string at = "model.layers.0.";
  const auto norm = [&](const char* name, const at::Tensor& in) {
    return rms(in, all.at(at + name + ".weight"));
  };
  const auto product = [&](const char* name, const at::Tensor& in) {
    return at::matmul(in, all.at(at + "mlp." + name + ".weight").t());
  };
  const at::Tensor in = norm("pre_feedforward_layernorm", x);
  const at::Tensor of_mlp = product("down_proj", at::silu(product("gate_proj", in)) * product("up_proj", in));
  const at::Tensor both = norm("post_feedforward_layernorm_1", of_mlp) +
                          norm("post_feedforward_layernorm_2", of_experts(all, at + "moe.", x));
  return x + norm("post_feedforward_layernorm", both);
}

TEST(ExpertsBeside, EqualPlainOperatorsWithEveryGradient) {
  at::manual_seed(4);
  const Units units = decoder::make_spec({.model = beside_model()})->make_units(at::kDouble);
  Parameters values;
  for (ParameterSlot& slot : units[1]->parameters()) {
    const at::NoGradGuard no_gradients;
    if (slot.tensor->dim() == 1) slot.tensor->add_(at::randn_like(*slot.tensor), 0.2);
    values[slot.name] = slot.tensor->detach().clone().set_requires_grad(true);
  }
  Batch batch;
  batch.tokens = at::zeros({2, kLength}, at::kLong);
  const at::Tensor from = at::randn({2 * kLength, kWidth}, at::kDouble);
  const at::Tensor x = from.clone().set_requires_grad(true), plain_x = from.clone().set_requires_grad(true);
  const at::Tensor got = units[1]->forward({x}, batch)[0], want = plain_layer(values, plain_x);
  const at::Tensor factors = at::linspace(-1, 2, got.numel(), at::kDouble).view_as(got);
  (got * factors).sum().backward();
  (want * factors).sum().backward();
  const auto near = [](const at::Tensor& a, const at::Tensor& b, const std::string& what) {
    EXPECT_LE((a - b).abs().max().item<double>(), 1e-10 * (1 + b.abs().max().item<double>())) << what;
  };
  near(got, want, "output");
  near(x.grad(), plain_x.grad(), "input");
  for (const ParameterSlot& slot : units[1]->parameters()) {
    ASSERT_TRUE(slot.tensor->grad().defined()) << slot.name;
    near(slot.tensor->grad(), values.at(slot.name).grad(), slot.name);
  }
}

TEST(ExpertsBeside, NeedAnMlpWithNormsBeforeAndAfter) {
  decoder::Model model = beside_model();
  model.layers[0].order = Layer::Order::before;
  EXPECT_EQ(thrown_by([&] { decoder::make_spec({.model = model})->make_units(at::kMeta); }),
            "error[config] model: layer 0 has parallel experts, but no MLP with norms before and after\n"
            "  hint: use Layer::experts_beside with an Mlp and Layer::Order::both");
}

decoder::Model sharing_model(int64_t source) {
  decoder::Model model = base_model();
  model.layers.push_back(model.layers[0]);
  model.layers.push_back(model.layers[0]);
  std::get<Attention>(model.layers[2].mixer).keys_of_layer = source;
  model.layer_inputs = {3, kTokens};
  return model;
}

// Units pass on the inputs of later layers, and keys and values up to the last layer that uses them.
TEST(CarriedTensors, GoToTheLayersThatNeedThem) {
  const Units units = decoder::make_spec({.model = sharing_model(0)})->make_units(at::kFloat);
  Batch batch;
  batch.tokens = at::zeros({2, kLength}, at::kLong);
  Tensors flow = units[0]->forward({}, batch);
  ASSERT_EQ(flow.size(), 2u);
  EXPECT_EQ(flow[1].size(1), 4 * 3);
  const Tensors first = flow = units[1]->forward(flow, batch);
  ASSERT_EQ(flow.size(), 4u);
  EXPECT_EQ(flow[1].size(1), 3 * 3);
  EXPECT_EQ(flow[2].sizes(), (std::vector<int64_t>{2 * kLength, 2 * 6}));
  EXPECT_TRUE(flow[3].requires_grad());
  flow = units[2]->forward(flow, batch);
  ASSERT_EQ(flow.size(), 4u);
  EXPECT_TRUE(flow[2].is_same(first[2]));
  const Tensors given = flow;
  flow = units[3]->forward(given, batch);
  EXPECT_EQ(flow.size(), 2u);
  // Checks that the layer reads the values: other values change the output.
  Tensors other = given;
  other[3] = at::randn_like(given[3]);
  EXPECT_FALSE(at::equal(units[3]->forward(other, batch)[0], flow[0]));
  EXPECT_EQ(units[4]->forward(flow, batch).size(), 1u);
}

// A packed row of two documents equals two rows of one document.
TEST(CarriedTensors, KeepDocumentsApart) {
  for (const Form& form : decoder_forms()) {
    if (form.name != "gemma4" && form.name != "muse") continue;
    SCOPED_TRACE(form.name);
    at::manual_seed(6);
    decoder::Model model = base_model();
    form.change(model);
    Units units = decoder::make_spec({.model = model})->make_units(at::kDouble);
    Batch both, alone;
    both.tokens = at::randint(kTokens, {1, kLength}, at::kLong);
    both.documents = at::tensor({0, 4, static_cast<int>(kLength)}, at::kInt);
    const at::Tensor packed = logits_of(units)(both).view({kLength, kTokens});
    for (const auto& [first, count] : {std::pair<int64_t, int64_t>(0, 4), {4, kLength - 4}}) {
      alone.tokens = both.tokens.narrow(1, first, count);
      const at::Tensor want = logits_of(units)(alone).view({count, kTokens});
      EXPECT_LE((packed.narrow(0, first, count) - want).abs().max().item<double>(), 1e-12);
    }
  }
}

TEST(CarriedTensors, RefuseKeysOfALayerThatHasNone) {
  const auto refusal = [](const decoder::Model& model) {
    return thrown_by([&] { decoder::make_spec({.model = model})->make_units(at::kMeta); });
  };
  const std::string hint =
      "\n  hint: set Attention::keys_of_layer to an earlier layer with its own keys and the same heads";
  EXPECT_EQ(refusal(sharing_model(2)),
            "error[config] model: layer 2 uses keys of layer 2, which is not an earlier layer" + hint);
  decoder::Model model = sharing_model(1);
  std::get<Attention>(model.layers[1].mixer).kv_heads = 4;
  EXPECT_EQ(refusal(model),
            "error[config] model: layer 2 uses keys of layer 1, which has no such keys" + hint);
  model = sharing_model(0);
  model.mtp.tokens = 1;
  model.mtp.layers = {model.layers[2]};
  EXPECT_EQ(
      refusal(model),
      "error[config] model: layer 4 uses keys of another layer in a multi-token prediction head" + hint);
}

}  // namespace
}  // namespace heddle::tests
