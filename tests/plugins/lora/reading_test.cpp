// Adapters on disk as models: merged into their base for any boxes and names, or refused.
#include <ATen/TensorOperators.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include "heddle/base/error.h"
#include "heddle/engine/engine.h"
#include "heddle/mesh/call.h"
#include "lib/checkpoint/safetensors/safetensors_writer.h"
#include "lib/run/convert/convert.h"
#include "lib/run/model/adapter/adapter.h"
#include "lib/run/model/prepared_model.h"
#include "plugins/lora/peft_golden.h"
#include "plugins/whole_runs.h"
#include "tests/core/engine/setups.h"
#include "thrown.h"

namespace heddle::tests {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::shared_ptr<const ModelSpec> spec_of(const std::string& keys) {
  return engine::read_model(config::read_text(keys, "config.json"), built_plugins());
}

const std::string kSizesOfAll =
    "vocab_size: 11, hidden_size: 8, intermediate_size: 12, num_hidden_layers: 1, num_attention_heads: 4, "
    "num_key_value_heads: 2, max_position_embeddings: 16";
const std::string kPlain = "{model_type: llama, " + kSizesOfAll + "}";
const std::string kTied = "{model_type: llama, tie_word_embeddings: true, " + kSizesOfAll + "}";
const std::string kJoined = "{model_type: phi3, pad_token_id: 0, " + kSizesOfAll + "}";

using AdapterTensors = std::map<std::string, at::Tensor>;

class LoraReading : public ::testing::Test {
 protected:
  std::filesystem::path write(const std::string& config, const AdapterTensors& tensors) const {
    const std::filesystem::path directory = folder_ / "adapter";
    std::filesystem::create_directories(directory);
    checkpoint::write_text(directory / kAdapterConfig, config);
    std::vector<checkpoint::TensorToWrite> listed;
    for (const auto& [name, tensor] : tensors)
      listed.push_back({name, tensor.scalar_type(), tensor.sizes().vec()});
    checkpoint::SafetensorsWriter writer(directory / kAdapterWeights, listed);
    for (const auto& [name, tensor] : tensors) writer.append(tensor);
    writer.finish();
    return directory;
  }

  std::string refusal(const std::string& keys, const std::string& config,
                      const AdapterTensors& tensors) const {
    try {
      (void)with_adapter([](const Shard&) { return true; }, write(config, tensors), spec_of(keys));
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  ScratchDirectory folder_;
};

AdapterTensors layer(const std::string& path, const at::Tensor& a, const at::Tensor& b) {
  return {{"base_model.model." + path + ".lora_A.weight", a},
          {"base_model.model." + path + ".lora_B.weight", b}};
}

const auto kOnes = [](const Shard&) { return true; };

TEST_F(LoraReading, AddsAnAdapterToBoxesOfALayer) {
  const at::Tensor a = at::randn({3, 8}), b = at::randn({12, 3}), sum = 1 + at::matmul(b, a) * (6.0 / 3);
  const std::string up = "model.layers.0.mlp.up_proj";
  const auto source = with_adapter(
      kOnes, write(R"({"peft_type": "LORA", "lora_alpha": 6, "r": 3})", layer(up, a, b)), spec_of(kPlain));
  EXPECT_TRUE(box_of(source, up + ".weight", {12, 8}).allclose(sum));
  EXPECT_TRUE(
      box_of(source, up + ".weight", {12, 8}, {5, 2}, {4, 3}).allclose(sum.narrow(0, 5, 4).narrow(1, 2, 3)));
  EXPECT_TRUE(box_of(source, "model.norm.weight", {8}).equal(at::ones({8})));
  const auto by_root = with_adapter(
      kOnes, write(R"({"r": 3, "lora_alpha": 6, "use_rslora": true})", layer(up, a, b)), spec_of(kPlain));
  EXPECT_TRUE(
      box_of(by_root, up + ".weight", {12, 8}).allclose(1 + at::matmul(b, a) * (6.0 / std::sqrt(3.0))));
}

// Files of this family hold queries, keys and values as one tensor, which PEFT adapts as a whole.
TEST_F(LoraReading, AddsTheAdapterOfAJoinedLayerToItsParts) {
  const at::Tensor a = at::randn({3, 8}), b = at::randn({16, 3}), sum = 1 + at::matmul(b, a) * 2;
  const std::string attention = "model.layers.0.self_attn.";
  const auto source = with_adapter(
      kOnes, write(R"({"r": 3, "lora_alpha": 6})", layer(attention + "qkv_proj", a, b)), spec_of(kJoined));
  EXPECT_TRUE(box_of(source, attention + "q_proj.weight", {8, 8}).allclose(sum.narrow(0, 0, 8)));
  EXPECT_TRUE(
      box_of(source, attention + "k_proj.weight", {4, 8}, {1, 0}, {3, 8}).allclose(sum.narrow(0, 9, 3)));
  EXPECT_TRUE(box_of(source, attention + "v_proj.weight", {4, 8}).allclose(sum.narrow(0, 12, 4)));
}

// Files of GPT-2 hold weights as [in, out], which PEFT records. A and B of an adapter are as usual.
TEST_F(LoraReading, AddsTheAdapterOfATransposedLayer) {
  const std::string keys =
      "{model_type: gpt2, vocab_size: 11, n_embd: 8, n_layer: 1, n_head: 2, n_positions: 16, resid_pdrop: 0, "
      "embd_pdrop: 0, attn_pdrop: 0}";
  const at::Tensor a = at::randn({3, 8}), b = at::randn({24, 3}), sum = 1 + at::matmul(b, a) * 2;
  for (const std::string path : {"transformer.h.0.attn.c_attn", "h.0.attn.c_attn"}) {  // the older name too
    const auto source =
        with_adapter(kOnes, write(R"({"r": 3, "lora_alpha": 6, "fan_in_fan_out": true})", layer(path, a, b)),
                     spec_of(keys));
    const std::string attention = "model.layers.0.self_attn.";
    EXPECT_TRUE(box_of(source, attention + "q_proj.weight", {8, 8}).allclose(sum.narrow(0, 0, 8)));
    EXPECT_TRUE(box_of(source, attention + "v_proj.weight", {8, 8}, {3, 2}, {4, 5})
                    .allclose(sum.narrow(0, 19, 4).narrow(1, 2, 5)));
  }
  EXPECT_THAT(refusal(keys, R"({"r": 3, "lora_alpha": 6})", layer("h.0.attn.c_attn", a, at::zeros({16, 3}))),
              HasSubstr("has a different shape than the base model's layer\n"));
}

TEST_F(LoraReading, RefusesAdaptersThatDoNotFitTheBase) {
  const at::Tensor a = at::zeros({3, 8}), b = at::zeros({11, 3});
  const std::string config = R"({"r": 3, "lora_alpha": 6})", place = (folder_ / "adapter").string();
  EXPECT_EQ(refusal(kTied, config, layer("lm_head", a, b)),
            "error[input] " + place +
                "/adapter_model.safetensors: the adapter of 'lm_head' names no separate layer of the base "
                "model: the layer is absent, or tied to another one\n  hint: check that the adapter was "
                "trained for the base model named in adapter_config.json");
  EXPECT_EQ(refusal(kPlain, config, layer("lm_head", a, b)), "no error");
  EXPECT_THAT(refusal(kPlain, config, layer("lm_head", a, at::zeros({12, 3}))),
              HasSubstr("the adapter of 'lm_head' has a different shape than the base model's layer\n"));
  EXPECT_THAT(
      refusal(kPlain, config, layer("lm_head", a, at::zeros({11, 4}))),
      HasSubstr("the adapter of 'lm_head' must have lora_A.weight [r, in] and lora_B.weight [out, r]\n"));
}

TEST_F(LoraReading, NamesUnsupportedForms) {
  const AdapterTensors fits = layer("lm_head", at::zeros({3, 8}), at::zeros({11, 3}));
  EXPECT_THAT(refusal(kPlain, R"({"peft_type": "IA3", "r": 3, "lora_alpha": 6})", fits),
              HasSubstr(R"(peft_type is "IA3", but heddle reads LORA)"));
  EXPECT_THAT(
      refusal(kPlain, R"({"r": 3, "lora_alpha": 6})",
              {{"base_model.model.lm_head.lora_magnitude", at::ones({3})}}),
      HasSubstr("holds the tensor \"base_model.model.lm_head.lora_magnitude\", but heddle reads only"));
  EXPECT_THAT(refusal(kPlain, "[]", fits),
              HasSubstr("adapter_config.json: is not a JSON object\n  hint: copy the file again"));
  std::filesystem::remove(folder_ / "adapter" / kAdapterWeights);
  EXPECT_THROW(with_adapter(kOnes, folder_ / "adapter", spec_of(kPlain)), Error);
}

// A checkpoint of adapters is a model: the base that it names, with the adapter.
TEST(LoraCheckpoints, AreReadAsTheBaseWithTheAdapter) {
  WholeRuns runs;
  runs.train({"base", 1, "{strategy: single}"}, "base", 1);
  runs.pretrained = "base/epoch_0_step_0";
  for (const bool random : {false, true}) {
    if (random) runs.pretrained = "";
    const std::string name = random ? "random" : "adapter";
    runs.train({"run", 1, "{strategy: single}", "peft: {dim: 2, alpha: 6}\n"}, name, 2);
    const auto saved = tensors_of(runs / name / "epoch_0_step_1/model");
    const auto base = random ? saved : tensors_of(runs / "base/epoch_0_step_0/model");
    const PreparedModel model = open_pretrained(runs / name, built_plugins());
    for (const auto& unit : model.make())
      for (const ParameterSlot& slot : unit->parameters()) {
        at::Tensor want = base.at(slot.name);
        const std::string path = slot.name.substr(0, slot.name.rfind('.'));
        if (saved.count(path + ".lora_A.weight") != 0 && slot.name.ends_with("weight"))
          want = want + at::matmul(saved.at(path + ".lora_B.weight"), saved.at(path + ".lora_A.weight")) * 3;
        const auto shape = slot.tensor->sizes().vec();
        EXPECT_TRUE(box_of(model.source, slot.name, shape).allclose(want)) << slot.name;
      }
  }
}

PreparedModel prepared_with(const std::string& peft, std::vector<std::string>& warnings) {
  const std::string yaml = "model: {config: " + kJoined + ", dtype: float32}\npeft: " + peft + "\n";
  const Recipe recipe =
      with_plugin_sections(read_recipe(config::read_text(yaml, "run.yaml")), built_plugins());
  return prepare_model(recipe, built_plugins(), warnings);
}

// PEFT has one adapter per joined layer. An adapter of some of its parts fits neither a file nor an export.
TEST(LoraCheckpoints, HaveNoPeftFilesForPartsOfJoinedLayers) {
  std::vector<std::string> warnings;
  PreparedModel model = prepared_with("{target_modules: '*q_proj'}", warnings);
  model = apply_transforms(std::move(model), false, warnings).model;
  EXPECT_THAT(
      warnings,
      ElementsAre("run.yaml:2 peft: checkpoints have no adapter_model.safetensors, and heddle generate and "
                  "heddle convert cannot read them: "
                  "'model.layers.0.self_attn.q_proj' is part of "
                  "'model.layers.0.self_attn.qkv_proj.weight' in the model's files, for which PEFT has a "
                  "single adapter",
                  "run.yaml:2 peft: the model starts with random weights, which peft freezes: set "
                  "model.pretrained_model_name_or_path"));
  EXPECT_EQ(model.added_files(), nullptr);
  EXPECT_THAT(thrown_by([&] { (void)apply_transforms(model, true, warnings); }),
              ::testing::HasSubstr("run.yaml:2 peft: the exported model has no place for what peft adds: "
                                   "'model.layers.0.self_attn.q_proj' is part of"));
}

// Checkpoints contain no config.json of the model.
TEST(LoraCheckpoints, RefuseKeysForExports) {
  Recipe recipe = read_recipe(config::read_text(
      "model: {pretrained_model_name_or_path: " HEDDLE_SOURCE_DIR
      "/tests/golden/phi3, config: {rope_theta: 5.0}, export_config: true}\npeft: {dim: 2}\n",
      "run.yaml"));
  recipe = with_plugin_sections(std::move(recipe), built_plugins());
  std::vector<std::string> warnings;
  PreparedModel model = prepare_model(recipe, built_plugins(), warnings);
  EXPECT_THAT(thrown_by([&] { (void)apply_transforms(model, true, warnings); }),
              ::testing::HasSubstr(
                  "run.yaml:1 model.config: model.export_config: peft saves only its own parameters"));
}

TEST(LoraCheckpoints, AreNotConvertedForPartsOfJoinedLayers) {
  WholeRuns runs;
  runs.pretrained = HEDDLE_SOURCE_DIR "/tests/golden/phi3";
  runs.train({"run", 1, "{strategy: single}", "peft: {target_modules: '*.gate_proj'}\n"}, "run", 1);
  PluginRegistry plugins({HEDDLE_BINARY_DIR "/plugins"});
  Conversion conversion;
  conversion.from = find_model(runs / "run");
  conversion.to = runs / "converted";
  conversion.model = read_saved_model(conversion.from, plugins);
  AloneRendezvous alone;
  EXPECT_THAT(
      thrown_by([&] { (void)convert(conversion, alone); }),
      ::testing::HasSubstr("holds no tensor 'model.embed_tokens.weight', so it is not a whole model"));
  EXPECT_FALSE(std::filesystem::exists(conversion.to));
}

TEST(LoraCheckpoints, HavePeftFilesForJoinedLayers) {
  std::vector<std::string> warnings;
  PreparedModel model = prepared_with("{target_modules: '*qkv_proj'}", warnings);
  model = apply_transforms(std::move(model), true, warnings).model;
  ASSERT_NE(model.added_files(), nullptr);
  std::vector<std::string> tensors;
  for (const auto& [parameter, stored] : model.added_files()->stored) tensors.push_back(stored.name);
  const std::string layer = "model.layers.0.self_attn.qkv_proj.lora_";
  EXPECT_THAT(tensors,
              ElementsAre(layer + "B.weight", layer + "A.weight", layer + "B.weight", layer + "B.weight"));
}

// Files join the weights of the base, but no rule applies to added parameters.
TEST(LoraCheckpoints, TrainJoinedLayersOnAPretrainedBase) {
  WholeRuns runs;
  runs.pretrained = HEDDLE_SOURCE_DIR "/tests/golden/phi3";
  const Told told =
      runs.train({"run", 1, "{strategy: single}", "peft: {target_modules: '*_proj', dim: 2}\n"}, "", 2);
  EXPECT_EQ(told.losses.size(), 2U);
}

}  // namespace
}  // namespace heddle::tests
