// Quantized values and their gradients equal torchao's (tests/golden/make_qat.py), and those of plain
// operators.
#include <ATen/TensorOperators.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/round.h>
#include <gmock/gmock.h>

#include <functional>

#include "heddle/checkpoint/safetensors.h"
#include "heddle/model/module_unit.h"
#include "heddle/nn/linear.h"
#include "heddle/plugin/registry.h"
#include "heddle/plugin/transform.h"
#include "plugins/qat/fake_quantize.h"
#include "plugins/transforms/layer_pair.h"

namespace heddle::tests {
namespace {

using qat::FakeQuantized;
using qat::WeightForm;

at::Tensor qat_tensor(const std::string& name) {
  static const SafetensorsFile file(std::string(HEDDLE_SOURCE_DIR) + "/tests/golden/qat/numbers.safetensors");
  const StoredTensor& stored = file.tensors().at(name);
  const at::Tensor out = at::empty(stored.shape, stored.dtype);
  file.read(name, std::vector<int64_t>(stored.shape.size(), 0), out);
  return out;
}

void expect_torchao(const std::string& name, const FakeQuantized& mine) {
  EXPECT_TRUE(mine.value.equal(qat_tensor(name + ".y"))) << name;
  const at::Tensor dx = qat::through(mine, qat_tensor(name + ".g"));
  EXPECT_TRUE(dx.equal(qat_tensor(name + ".dx"))) << name;
}

TEST(FakeQuantization, EqualsTorchaoBitForBit) {
  for (const std::string dtype : {"f32", "bf16"}) {
    const std::string tokens = "tokens_" + dtype;
    expect_torchao(tokens, qat::rounded_tokens(qat_tensor(tokens + ".x")));
    for (const auto& [word, scales] : {std::pair("f32", at::kFloat), std::pair("bf16", at::kBFloat16)}) {
      const std::string name = "symmetric_" + dtype + "_" + word + "_10";
      expect_torchao(name, qat::rounded_weight(qat_tensor(name + ".x"), {true, 10, scales}));
    }
    const std::string ranged = "ranged_" + dtype + "_bf16_32";
    expect_torchao(ranged, qat::rounded_weight(qat_tensor(ranged + ".x"), {false, 32, at::kBFloat16}));
  }
}

// The largest value of a group is 7.5 scales. It rounds to 8, which is clamped to 7, or to -8, which is not.
TEST(FakeQuantization, GivesClampedValuesNoGradient) {
  const at::Tensor weight = at::arange(8, at::kFloat).view({1, 8}).clamp_max(6);
  weight[0][3] = 7.5;
  const WeightForm form{true, 8, at::kFloat};
  const FakeQuantized above = qat::rounded_weight(weight, form), below = qat::rounded_weight(-weight, form);
  EXPECT_EQ(above.value[0][3].item<float>(), 7);
  EXPECT_EQ(below.value[0][3].item<float>(), -8);
  at::Tensor want = at::ones({1, 8});
  EXPECT_TRUE(qat::through(below, at::ones({1, 8})).equal(want));
  want[0][3] = 0;
  EXPECT_TRUE(qat::through(above, at::ones({1, 8})).equal(want));
}

at::Tensor straight_round(const at::Tensor& x) {
  return x + (at::round(x) - x).detach();
}

at::Tensor tokens_by_hand(const at::Tensor& x) {
  const at::Tensor flat = x.detach(), least = at::amin(flat, -1, true).clamp_max(0),
                   most = at::amax(flat, -1, true).clamp_min(0);
  const at::Tensor scale = ((most - least) / 255).clamp_min(0x1p-23),
                   zero = (-at::round(least / scale) - 128).clamp(-128, 127),
                   narrow = scale.to(at::kFloat).to(at::kDouble);
  const at::Tensor inverse = scale.to(at::kFloat).reciprocal().to(at::kDouble);
  return (at::clamp(straight_round(x * inverse) + zero, -128, 127) - zero) * narrow;
}

at::Tensor weight_by_hand(const at::Tensor& weight, const std::string& type, int64_t group) {
  const at::Tensor x = weight.view({weight.size(0), -1, group}), fixed = x.detach();
  const auto narrow = [](const at::Tensor& y) { return y.to(at::kBFloat16).to(at::kDouble); };
  if (type == "int8_dynact_int4weight") {
    const at::Tensor scale = at::amax(fixed.abs(), -1, true) / 7.5;
    const at::Tensor inverse = scale.to(at::kBFloat16).reciprocal().to(at::kDouble);
    return (at::clamp(straight_round(x * inverse), -8, 7) * narrow(scale)).view(weight.sizes());
  }
  const at::Tensor least = at::amin(fixed, -1, true), scale = (at::amax(fixed, -1, true) - least) / 15,
                   by = narrow(scale), zero = narrow(least + scale * 8);
  const at::Tensor begin = (zero.to(at::kBFloat16) - scale.to(at::kBFloat16) * 8).to(at::kDouble);
  return ((at::clamp(straight_round((x - begin) / by), 0, 15) - 8) * by + zero).view(weight.sizes());
}

// Applies qat from step 1 on.
void apply_qat(Units& units, const std::string& type, int64_t group) {
  static PluginRegistry plugins({HEDDLE_BINARY_DIR "/plugins"});
  const auto* offered = plugins.find<OfferedTransform>("qat");
  const std::string section =
      "{enabled: true, fake_quant_after_n_steps: 1, qat_config: {quantizer_type: " + type +
      ", groupsize: " + std::to_string(group) + (type == "int4_weight_only" ? ", inner_k_tiles: 2}}" : "}}");
  const auto transform = offered->make(offered->resolve(config::read_text(section, "run.yaml")).values);
  (void)transform->apply(units, {"run.yaml:2 qat"});
}

void expect_by_plain_operators(const at::Tensor& got, const at::Tensor& want) {
  const double most = want.detach().abs().max().item<double>();
  EXPECT_LT((got.detach() - want.detach()).abs().max().item<double>(), 1e-11 * most);
}

// The weight of a, its bias if it has one, and the weight of b.
at::Tensor pair_by_hand(const at::Tensor& x, const std::vector<at::Tensor>& parameters,
                        const std::function<at::Tensor(const at::Tensor&)>& rounded) {
  const at::Tensor bias = parameters.size() == 3 ? parameters[1] : at::Tensor();
  const at::Tensor of_a = at::linear(x, rounded(parameters.front()), bias),
                   of_b = at::linear(x, rounded(parameters.back()));
  return (of_a * of_a).sum() + (of_b * of_b * of_b).sum();
}

void expect_gradients_by_hand(const std::string& type, int64_t group, Linear::Bias bias) {
  SCOPED_TRACE(type);
  Units units;
  auto owned = std::make_unique<LayerPair>(96, bias, at::kDouble);
  LayerPair& pair = *owned;
  units.push_back(std::make_unique<ModuleUnit>("pair", "pair", std::move(owned)));
  apply_qat(units, type, group);
  std::vector<at::Tensor> mine, by_hand;
  for (const ParameterSlot& slot : units[0]->parameters()) {
    slot.tensor->detach().normal_();
    mine.push_back(*slot.tensor);
    by_hand.push_back(slot.tensor->detach().clone().set_requires_grad(true));
  }
  const at::Tensor x = at::randn({3, 2, 96}, at::kDouble).set_requires_grad(true),
                   y = x.detach().clone().set_requires_grad(true);
  Batch batch;
  expect_by_plain_operators(pair.call(x, batch),
                            pair_by_hand(x, mine, [](const at::Tensor& w) { return w; }));
  batch.step = 1;
  const at::Tensor got = pair.call(x, batch);
  got.backward();
  const at::Tensor in = type == "int8_dynact_int4weight" ? tokens_by_hand(y) : y;
  const at::Tensor want =
      pair_by_hand(in, by_hand, [&](const at::Tensor& w) { return weight_by_hand(w, type, group); });
  want.backward();
  expect_by_plain_operators(got, want);
  expect_by_plain_operators(x.grad(), y.grad());
  for (size_t i = 0; i < mine.size(); ++i) expect_by_plain_operators(mine[i].grad(), by_hand[i].grad());
}

TEST(FakeQuantization, HasTheGradientsOfPlainOperators) {
  expect_gradients_by_hand("int8_dynact_int4weight", 12, Linear::Bias::zeros);
  expect_gradients_by_hand("int4_weight_only", 32, Linear::Bias::none);
}

}  // namespace
}  // namespace heddle::tests
