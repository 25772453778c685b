// Adapters on a base in 4 bits: products, and whole runs on every topology.
#include <ATen/TensorOperators.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>

#include "heddle/base/error.h"
#include "heddle/model/module_unit.h"
#include "heddle/nn/linear.h"
#include "lib/checkpoint/safetensors/safetensors_writer.h"
#include "lib/run/model/find_model.h"
#include "plugins/lora/peft_units.h"
#include "plugins/quantize/packed.h"
#include "plugins/transforms/layer_pair.h"
#include "plugins/whole_runs.h"

namespace heddle::tests {
namespace {

using quantize::Form;

const std::string kQuantized = "quantization: {load_in_4bit: true, bnb_4bit_compute_dtype: float32}\n";

Topology qlora(const std::string& distributed = "{strategy: single}", int ranks = 1,
               const std::string& peft = "{dim: 3}", const std::string& quantization = kQuantized) {
  return {"run", ranks, distributed, "peft: " + peft + "\n" + quantization};
}

// Returns true for weights of linear layers except the head.
bool is_quantized(const std::string& name) {
  return name.ends_with("_proj.weight");
}

class QuantizedRuns : public ::testing::Test {
 protected:
  QuantizedRuns() {
    // Weights that are large enough for their rounding to change losses.
    runs.model.insert(runs.model.size() - 1, ", initializer_range: 0.3");
    runs.train({"base", 1, "{strategy: single}"}, "base", 2);
    runs.pretrained = "base/epoch_0_step_1";
  }

  // Writes a copy of the base whose weights were packed and unpacked.
  void write_rounded(const std::string& name) const {
    const auto from = runs / "base/epoch_0_step_1/model", to = runs / name;
    std::filesystem::create_directories(to);
    std::filesystem::copy_file(find_model(runs / "base/epoch_0_step_1").notes / "config.json",
                               to / "config.json");
    auto tensors = tensors_of(from);
    std::vector<checkpoint::TensorToWrite> listed;
    for (auto& [key, tensor] : tensors) {
      listed.push_back({key, tensor.scalar_type(), tensor.sizes().vec()});
      if (!is_quantized(key)) continue;
      const Form form{tensor.size(0), tensor.size(1), at::kFloat, true};
      tensor = quantize::unpack(quantize::pack(tensor, form), form, at::kFloat);
    }
    checkpoint::SafetensorsWriter writer(to / "model.safetensors", listed);
    for (const auto& [key, tensor] : tensors) writer.append(tensor);
    writer.finish();
  }

  WholeRuns runs;
};

TEST_F(QuantizedRuns, EqualAdaptersOnTheRoundedWeights) {
  const Told packed = runs.train(qlora(), "packed", 5);
  const Told plain = runs.train({"run", 1, "{strategy: single}", "peft: {dim: 3}\n"}, "plain", 5);
  EXPECT_GT(std::abs(packed.losses[0] - plain.losses[0]), 2e-3);
  write_rounded("rounded");
  runs.pretrained = "rounded";
  expect_alike(packed, runs.train({"run", 1, "{strategy: single}", "peft: {dim: 3}\n"}, "whole", 5));
}

TEST_F(QuantizedRuns, AreEqualOnEveryTopology) {
  expect_alike_on(runs, "peft: {dim: 3, match_all_linear: true}\n" + kQuantized,  // the head too
                  {{2, "{strategy: ddp}"},
                   {2, kFsdp2InFp32 + "}"},
                   {2, kFsdp2InFp32 + ", cp_size: 2}"},
                   {2, "{strategy: megatron_fsdp}"},
                   {2, "{strategy: megatron}"},
                   {2, kFsdp2InFp32 + ", activation_checkpointing: full, " + two_stages("zb1p") + "}"}});
}

TEST_F(QuantizedRuns, SaveOnlyAdaptersAndResumeBitForBit) {
  expect_resumes(runs, qlora(kFsdp2InFp32 + "}", 2), {qlora()});
  for (const auto& [name, tensor] : tensors_of(runs / "straight/epoch_0_step_3/model"))
    EXPECT_NE(name.find(".lora_"), name.npos) << name;
  EXPECT_TRUE(std::filesystem::exists(runs / "straight/epoch_0_step_3/model/adapter_model.safetensors"));
}

// For a model with random weights the packed bytes are saved, equal on every topology.
TEST_F(QuantizedRuns, SaveRandomWeights) {
  runs.pretrained = "";
  runs.train(qlora(), "one", 2);
  runs.train(qlora(kFsdp2InFp32 + "}", 2), "two", 2);
  const auto one = tensors_of(runs / "one/epoch_0_step_1/model"),
             two = tensors_of(runs / "two/epoch_0_step_1/model");
  const std::string name = "model.layers.1.mlp.up_proj.weight";
  EXPECT_EQ(one.at(name).scalar_type(), at::kByte);
  EXPECT_TRUE(one.at(name).equal(two.at(name)));
}

TEST_F(QuantizedRuns, ComputeInTheConfiguredDtype) {
  const std::string bfloat16 = "quantization: {load_in_4bit: true, bnb_4bit_use_double_quant: false}\n";
  const Told wide = runs.train(qlora(), "wide", 2),
             narrow = runs.train(qlora("{strategy: single}", 1, "{dim: 3}", bfloat16), "narrow", 2);
  EXPECT_NE(narrow.losses, wide.losses);
  EXPECT_NEAR(narrow.losses[0], wide.losses[0], 2e-2 * wide.losses[0]);
}

// Three projections of one file layer, whose parts have other sizes than their bytes.
TEST(Quantization, SupportsModelsWhoseFilesJoinLayers) {
  WholeRuns runs;
  runs.pretrained = HEDDLE_SOURCE_DIR "/tests/golden/phi3";
  const Told one = runs.train(qlora(), "one", 3);
  expect_alike(runs.train(qlora(kFsdp2InFp32 + "}", 2), "two", 3), one);
  EXPECT_NE(one.losses, runs.train(qlora("{strategy: single}", 1, "{dim: 3}", ""), "plain", 3).losses);
}

TEST(Quantization, ReportsItsLayersAndSkipsTheHeadAndExperts) {
  Units units = units_of(
      "{model_type: qwen3_moe, vocab_size: 53, hidden_size: 64, intermediate_size: 32, num_hidden_layers: 1, "
      "num_attention_heads: 4, num_key_value_heads: 4, head_dim: 16, moe_intermediate_size: 32, "
      "num_experts: 4, num_experts_per_tok: 2, max_position_embeddings: 16}");
  const Transformed said = adapt(units, "{}\nquantization: {load_in_4bit: true}");
  EXPECT_EQ(said.note,
            "weights of 4 linear layers in 4 bits (nf4): 12.75 KiB, in float32 64.00 KiB; experts keep their "
            "dtype");
  EXPECT_EQ(said.derived.size(), 4U);
  for (const auto& unit : units)
    for (const ParameterSlot& slot : unit->parameters())
      EXPECT_EQ(slot.tensor->scalar_type() == at::kByte,
                is_quantized(slot.name) && slot.name.find("self_attn") != std::string::npos)
          << slot.name;
}

at::Tensor rounded_to_4_bits(const at::Tensor& weight) {
  const Form form{weight.size(0), weight.size(1), at::kFloat, true};
  return quantize::unpack(quantize::pack(weight, form), form, at::kFloat);
}

TEST(Quantization, MultipliesUnpackedWeightsForwardAndBackward) {
  Units units;
  auto owned = std::make_unique<LayerPair>(70, Linear::Bias::zeros, at::kCPU);
  LayerPair& pair = *owned;
  units.push_back(std::make_unique<ModuleUnit>("pair", "pair", std::move(owned)));
  for (Linear* layer : {&pair.a, &pair.b}) layer->weight.detach().normal_();
  pair.a.bias.detach().normal_();
  const at::Tensor a = rounded_to_4_bits(pair.a.weight.detach()),
                   b = rounded_to_4_bits(pair.b.weight.detach());
  EXPECT_GT((a - pair.a.weight.detach()).abs().max().item<double>(), 0.01);
  (void)adapt(units, "{dim: 2}\n" + kQuantized);
  EXPECT_EQ(pair.a.weight.scalar_type(), at::kByte);
  const at::Tensor x = at::randn({3, 70}).set_requires_grad(true);
  Batch batch;
  const at::Tensor got = units[0]->module()->call(x, batch);
  got.backward();
  const at::Tensor y = x.detach().clone().set_requires_grad(true), of_a = at::linear(y, a, pair.a.bias),
                   of_b = at::linear(y, b), want = (of_a * of_a).sum() + (of_b * of_b * of_b).sum();
  want.backward();
  EXPECT_NEAR(got.item<double>(), want.item<double>(), 1e-4 * std::abs(want.item<double>()));
  EXPECT_TRUE(x.grad().allclose(y.grad(), 1e-4, 1e-4));
}

}  // namespace
}  // namespace heddle::tests
