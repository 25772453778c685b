// Adapters of layers that files join: all parts share one A, as in PEFT (tests/golden/make_joined.py).
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <gmock/gmock.h>

#include "plugins/lora/peft_golden.h"
#include "plugins/lora/peft_units.h"

namespace heddle::tests {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const PeftGolden kJoinedGolden = {"phi3", "joined"};

// Compares q, k and v, or gate and up, with PEFT's adapter: the same A, and rows of B.
void expect_trained_as_peft(Stages& stages) {
  const SafetensorsFile peft = kJoinedGolden.file("adapter/adapter_model.safetensors");
  std::map<std::string, at::Tensor> ours;
  for (const Shard* shard : stages.shards())
    if (shard->name.find(".lora_") != std::string::npos) ours[shard->name] = shard->tensor.detach();
  const std::string layer = "model.layers.1.", key = "base_model.model." + layer;
  const auto of = [&](const std::string& name) { return ours.at(layer + name + ".weight"); };
  const auto equal = [&](const at::Tensor& got, const std::string& name) {
    EXPECT_TRUE(got.allclose(read_tensor(peft, key + name + ".weight"), 1e-4, 1e-5)) << name;
  };
  equal(of("self_attn.q_proj.lora_A"), "self_attn.qkv_proj.lora_A");
  equal(
      at::cat({of("self_attn.q_proj.lora_B"), of("self_attn.k_proj.lora_B"), of("self_attn.v_proj.lora_B")}),
      "self_attn.qkv_proj.lora_B");
  equal(of("mlp.gate_proj.lora_A"), "mlp.gate_up_proj.lora_A");
  equal(at::cat({of("mlp.gate_proj.lora_B"), of("mlp.up_proj.lora_B")}), "mlp.gate_up_proj.lora_B");
  EXPECT_EQ(ours.size(), 2U * (4 + 7));  // A of four file layers, B of seven linear layers
}

TEST(LoraOfJoinedLayers, EqualsPeftForFiveSteps) {
  kJoinedGolden.expect_steps("{target_modules: '*_proj', dim: 3, alpha: 6}", expect_trained_as_peft);
}

TEST(LoraOfJoinedLayers, MergesPeftsAdaptersLikePeft) {
  const ParameterSource source = kJoinedGolden.merged();
  const SafetensorsFile merged = kJoinedGolden.file("merged.safetensors");
  const std::string attention = "model.layers.0.self_attn.", mlp = "model.layers.1.mlp.";
  const at::Tensor qkv = at::cat({box_of(source, attention + "q_proj.weight", {40, 40}),
                                  box_of(source, attention + "k_proj.weight", {20, 40}),
                                  box_of(source, attention + "v_proj.weight", {20, 40})}),
                   gate_up = at::cat({box_of(source, mlp + "gate_proj.weight", {46, 40}),
                                      box_of(source, mlp + "up_proj.weight", {46, 40})});
  EXPECT_TRUE(qkv.allclose(read_tensor(merged, attention + "qkv_proj.weight"), 1e-5, 1e-6));
  EXPECT_TRUE(gate_up.allclose(read_tensor(merged, mlp + "gate_up_proj.weight"), 1e-5, 1e-6));
}

std::string names_of(const std::vector<std::string>& paths) {
  std::string out;
  for (const std::string& path : paths) out += (out.empty() ? "" : " ") + path.substr(path.rfind('.') + 1);
  return out;
}

const std::string kOneLayer =
    "vocab_size: 11, hidden_size: 8, intermediate_size: 12, num_hidden_layers: 1, num_attention_heads: 4, "
    "num_key_value_heads: 2, max_position_embeddings: 16, pad_token_id: 0}";

// AutoModel's model has the layers of the files. The first part has A.
TEST(LoraMatching, UsesTheNamesOfFiles) {
  const std::string phi3 = "{model_type: phi3, " + kOneLayer;
  EXPECT_EQ(names_of(adapted(phi3, "{target_modules: '*_proj'}")), "gate_proj down_proj q_proj o_proj");
  EXPECT_EQ(names_of(adapted(phi3, "{target_modules: ['*.qkv_proj']}")), "q_proj");
  EXPECT_EQ(names_of(adapted(phi3, "{target_modules: ['*.v_proj']}")),
            "q_proj");  // a dot matches any character
  EXPECT_EQ(names_of(adapted(phi3, "{target_modules: '*.mlp.(gate_up|down)_proj'}")), "gate_proj down_proj");
  EXPECT_EQ(names_of(adapted(phi3, "{match_all_linear: true}")), "lm_head gate_proj down_proj q_proj o_proj");
  EXPECT_EQ(names_of(adapted(phi3, "{exclude_modules: ['*.qkv_proj', '*lm_head']}")),
            "gate_proj down_proj o_proj");
  const std::string gpt2 =
      "{model_type: gpt2, vocab_size: 11, n_embd: 8, n_layer: 1, n_head: 2, n_positions: 16, resid_pdrop: 0, "
      "embd_pdrop: 0, attn_pdrop: 0}";
  EXPECT_EQ(names_of(adapted(gpt2, "{target_modules: ['*.c_attn', '*.c_fc']}")), "up_proj q_proj");
  EXPECT_EQ(names_of(adapted(gpt2, "{target_modules: '*_proj'}")), "down_proj o_proj");  // c_proj
  const std::string baichuan =
      "{model_type: baichuan, vocab_size: 11, hidden_size: 8, intermediate_size: 12, num_hidden_layers: 1, "
      "num_attention_heads: 2, max_position_embeddings: 16}";
  EXPECT_EQ(names_of(adapted(baichuan, "{target_modules: ['*.W_pack']}")), "q_proj");
  EXPECT_EQ(names_of(adapted(baichuan, "{}")), "gate_proj up_proj down_proj o_proj");
}

// Patterns that match no name in files are matched with heddle's names: all parts must be selected together.
TEST(LoraMatching, FallsBackToTheNamesOfParts) {
  const std::string phi3 = "{model_type: phi3, " + kOneLayer;
  EXPECT_EQ(names_of(adapted(phi3, "{target_modules: '*.self_attn.(q|k|v)_proj'}")), "q_proj");
  EXPECT_EQ(names_of(adapted(phi3, "{target_modules: ['*.q_proj', '*.k_proj', '*.o_proj']}")),
            "q_proj k_proj o_proj");
  const auto spec = spec_of_keys(phi3);
  Units units = units_of(phi3);
  const Transformed all = adapt(units, "{target_modules: '*.(gate|up)_proj'}", spec.get());
  EXPECT_TRUE(all.files);
  EXPECT_THAT(all.warnings, IsEmpty());
  units = units_of(phi3);
  const Transformed some = adapt(units, "{target_modules: '*.gate_proj'}", spec.get());
  EXPECT_FALSE(some.files);
  EXPECT_THAT(
      some.warnings,
      ElementsAre(HasSubstr("cannot read them: 'model.layers.0.mlp.gate_proj' "
                            "is part of 'model.layers.0.mlp.gate_up_proj.weight' in the model's files")));
}

}  // namespace
}  // namespace heddle::tests
