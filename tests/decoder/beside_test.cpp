// Layers with several mixers in parallel equal the sum of layers with one mixer. Multipliers and gates of
// Mamba-2 equal scaled weights and plain operators.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "heddle/decoder/family.h"
#include "tests/decoder/generated.h"
#include "thrown.h"

namespace heddle::tests {
namespace {

using decoder::Absent;
using decoder::Mamba;
using ::testing::HasSubstr;

Mamba small_mamba() {
  Mamba form;
  form.heads = 4, form.groups = 2, form.width = 3, form.state = 5;
  return form;
}

decoder::Attention small_attention() {
  decoder::Attention form;
  form.heads = 2, form.kv_heads = 1, form.head_dim = 6, form.rotation.dim = 6;
  return form;
}

decoder::Model one_layer(const decoder::Layer& layer) {
  decoder::Model model;
  model.vocabulary = 13, model.width = 12, model.init_std = 0.3;
  model.layers = {layer};
  return model;
}

decoder::Layer two_mixers(const Mamba& mamba) {
  decoder::Layer layer{small_attention(), Absent()};
  layer.beside = {decoder::mamba(mamba)};
  return layer;
}

Units beside_units(const decoder::Model& model, at::ScalarType dtype = at::kDouble) {
  at::manual_seed(8);
  return decoder::make_spec({.model = model})->make_units(at::TensorOptions(dtype));
}

// Output of one layer for given hidden states, and the gradients of its input and its parameters.
struct LayerResult {
  at::Tensor y, x;
  std::map<std::string, at::Tensor> gradients;
};

using LayerValues = std::map<std::string, at::Tensor>;

LayerResult layer_result(const Units& units, const LayerValues& values, const at::Tensor& from) {
  for (ParameterSlot& slot : units[1]->parameters()) {
    const at::NoGradGuard no_gradients;
    slot.tensor->copy_(values.at(slot.name));
  }
  Batch batch;
  batch.tokens = at::zeros({2, 9}, at::kLong);
  LayerResult out;
  out.x = from.detach().clone().set_requires_grad(true);
  out.y = units[1]->forward({out.x}, batch)[0];
  (out.y * at::linspace(-1, 2, out.y.numel(), at::kDouble).view_as(out.y)).sum().backward();
  for (ParameterSlot& slot : units[1]->parameters()) out.gradients[slot.name] = slot.tensor->grad();
  return out;
}

LayerValues layer_values(const Units& units) {
  LayerValues out;
  for (ParameterSlot& slot : units[1]->parameters()) out[slot.name] = slot.tensor->detach().clone();
  return out;
}

void expect_equal_to(const at::Tensor& got, const at::Tensor& want, const std::string& what) {
  ASSERT_TRUE(got.defined()) << what;
  EXPECT_LE((got - want).abs().max().item<double>(), 1e-11 * (1 + want.abs().max().item<double>())) << what;
}

// x + attention + mamba equals (x + attention) + (x + mamba) - x. Gradients of shared parameters add up.
TEST(Beside, AddsWhatEachMixerAlone) {
  const Units both = beside_units(one_layer(two_mixers(small_mamba())));
  const Units first = beside_units(one_layer({small_attention(), Absent()}));
  const Units second = beside_units(one_layer({decoder::mamba(small_mamba()), Absent()}));
  const LayerValues values = layer_values(both);
  const at::Tensor x = at::randn({18, 12}, at::kDouble);
  const LayerResult got = layer_result(both, values, x), one = layer_result(first, values, x),
                    other = layer_result(second, values, x);
  expect_equal_to(got.y, one.y + other.y - x, "output");
  const std::string norm = "model.layers.0.input_layernorm.weight";
  for (const auto& [name, gradient] : got.gradients) {
    at::Tensor want = one.gradients.contains(name) ? one.gradients.at(name) : other.gradients.at(name);
    if (name == norm) want = one.gradients.at(name) + other.gradients.at(name);
    expect_equal_to(gradient, want, name);
  }
}

// Without biases, scaling the input or output of a product equals scaling its weight.
TEST(Beside, MultipliersOfMambaAreThoseOfWeights) {
  for (const Mamba::Gate gate :
       {Mamba::Gate::before_norm, Mamba::Gate::after_norm, Mamba::Gate::without_norm}) {
    Mamba form = small_mamba();
    form.gate = gate;
    const Units plain = beside_units(one_layer({decoder::mamba(form), Absent()}));
    form.input_multiplier = 0.8, form.output_multiplier = 1.7;
    form.part_multipliers = {0.9, 1.4, 0.5, 0.7, 1.6};
    const Units scaled = beside_units(one_layer({decoder::mamba(form), Absent()}));
    const LayerValues values = layer_values(plain);
    LayerValues changed = values;
    std::map<std::string, double> factors;
    const std::string at = "model.layers.0.mamba.";
    const char* const parts[] = {"z", "x", "b", "c", "dt"};
    for (size_t i = 0; i < 5; ++i)
      factors[at + "in_proj_" + parts[i] + ".weight"] = form.input_multiplier * form.part_multipliers[i];
    factors[at + "out_proj.weight"] = form.output_multiplier;
    for (const auto& [name, factor] : factors) changed[name] = values.at(name) * factor;
    const at::Tensor x = at::randn({18, 12}, at::kDouble);
    const LayerResult got = layer_result(scaled, values, x), want = layer_result(plain, changed, x);
    expect_equal_to(got.y, want.y, "output");
    expect_equal_to(got.x.grad(), want.x.grad(), "input");
    for (const auto& [name, gradient] : got.gradients)
      expect_equal_to(gradient, want.gradients.at(name) * (factors.contains(name) ? factors[name] : 1), name);
  }
}

TEST(Beside, CountsItsOperations) {
  const auto operations = [](const decoder::Layer& layer) {
    return decoder::make_spec({.model = one_layer(layer)})->flops_per_token(20);
  };
  const double logits = 6 * 12 * 13;
  EXPECT_EQ(
      operations(two_mixers(small_mamba())) + logits,
      operations({small_attention(), Absent()}) + operations({decoder::mamba(small_mamba()), Absent()}));
}

TEST(Beside, KeepsCacheAndStateWhileTokensAreGenerated) {
  const decoder::Model model = one_layer(two_mixers(small_mamba()));
  Units whole = beside_units(model, at::kFloat), cached = beside_units(model, at::kFloat);
  expect_same_tokens(whole, cached);
}

TEST(Beside, RefusesTwoOfOneNameAndNoFirst) {
  decoder::Layer two = two_mixers(small_mamba());
  two.beside.push_back(decoder::mamba(small_mamba()));
  EXPECT_THAT(thrown_by([&] { beside_units(one_layer(two)); }),
              HasSubstr("the mixer 'mamba' is parallel to another mixer with this name"));
  decoder::Layer alone = two_mixers(small_mamba());
  alone.mixer = Absent();
  EXPECT_THAT(thrown_by([&] { beside_units(one_layer(alone)); }),
              HasSubstr("the mixer 'mamba' is parallel to no first mixer"));
}

}  // namespace
}  // namespace heddle::tests
