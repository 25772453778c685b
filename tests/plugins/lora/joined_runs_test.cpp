// Whole runs with adapters of layers that files join: equal on every topology, resumed, and saved in PEFT's
// format.
#include <ATen/TensorOperators.h>
#include <ATen/ops/matmul.h>
#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "heddle/checkpoint/safetensors.h"
#include "lib/run/model/prepared_model.h"
#include "plugins/lora/peft_golden.h"
#include "plugins/whole_runs.h"
#include "tests/core/engine/setups.h"
#include "tests/main/with_all.h"

namespace heddle::tests {
namespace {

HEDDLE_WITH_ALL("LoraJoinedRuns.Train*");

using ::testing::Contains;
using ::testing::HasSubstr;

const std::string kPhi3 =
    "{model_type: phi3, vocab_size: 53, hidden_size: 24, intermediate_size: 23, num_hidden_layers: 3, "
    "num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 16, pad_token_id: 0}";

class LoraJoinedRuns : public ::testing::Test {
 protected:
  LoraJoinedRuns() {
    runs.model = kPhi3;
    runs.train({"base", 1, "{strategy: single}"}, "base", 2);
    runs.pretrained = "base/epoch_0_step_1";
  }
  static Topology with(const std::string& peft, const std::string& distributed = "{strategy: single}",
                       int ranks = 1) {
    return {"run", ranks, distributed, "peft: " + peft + "\n"};
  }
  void expect_alike(const std::string& peft, const Places& places) const {
    expect_alike_on(runs, "peft: " + peft + "\n", places);
  }
  WholeRuns runs;
};

TEST_F(LoraJoinedRuns, AreEqualOnEveryTopology) {
  const std::string tensor = "tp_size: 2, sequence_parallel: true";
  expect_alike(
      "{match_all_linear: true, dim: 5}",
      {{2, "{strategy: ddp}"},
       {2, kFsdp2InFp32 + "}"},
       {2, "{strategy: megatron_fsdp}"},
       {2, "{strategy: single, tp_size: 2}"},
       {2, kFsdp2InFp32 + ", " + tensor + "}"},
       {2, kFsdp2InFp32 + ", " + tensor + ", enable_async_tensor_parallel: true}"},
       {2, kFsdp2InFp32 + ", " + two_stages("1f1b") + "}"},
       {2, "{strategy: single, " + two_stages("zb1p") + "}"},
       {2, kFsdp2InFp32 + ", activation_checkpointing: full, " + two_stages("zb1p") + "}"},
       {2, kFsdp2InFp32 + ", cp_size: 2}"},
       {4, kFsdp2InFp32 + ", activation_checkpointing: full, " + tensor + ", " + two_stages("zb1p") + "}"}});
}

// One mask for the input of all parts, and the row lengths of the parts.
TEST_F(LoraJoinedRuns, TrainDropoutAndMagnitudesEquallyOnEveryTopology) {
  const Places topologies = {{2, kFsdp2InFp32 + ", activation_checkpointing: full}"},
                             {2, "{strategy: single, " + two_stages("zb1p") + "}"}};
  expect_alike("{dim: 3, dropout: 0.3, dropout_position: pre}", topologies);
  expect_alike("{dim: 3, dropout: 0.3, dropout_position: post}", topologies);
  expect_alike("{dim: 3, use_dora: true, dropout: 0.2, dropout_position: pre}", topologies);
}

// A belongs to the layer that is split by its inputs, and would have to be split too.
TEST_F(LoraJoinedRuns, RefuseAPlanThatSplitsTheInputsOfAPart) {
  const std::string attention = "model.layers.*.self_attn.";
  EXPECT_THAT(
      runs.refusal(with("{target_modules: '*.qkv_proj'}",
                        "{strategy: fsdp2, tp_size: 2, tp_plan: {" + attention + "q_proj: colwise, " +
                            attention + "k_proj: rowwise, " + attention + "v_proj: colwise, " + attention +
                            "o_proj: rowwise}}",
                        2)),
      HasSubstr("'model.layers.0.self_attn.k_proj' gets split hidden states, but its child linear layer "
                "'model.layers.0.self_attn.k_proj.lora_B' gets its input from a sibling layer"));
}

// Mixers whose projections of one input are one layer in files, or two (Qwen3-Next: interleaved by head).
TEST_F(LoraJoinedRuns, TrainMixersEquallyOnEveryTopology) {
  const std::string section = "{target_modules: '*.in_proj.*', dim: 3}";
  Places topologies = {{2, kFsdp2InFp32 + "}"}, {2, "{strategy: single, tp_size: 2}"}};
  runs.pretrained = std::string(HEDDLE_SOURCE_DIR) + "/tests/golden/qwen3_next";
  expect_alike(section, topologies);
  topologies.emplace_back(2, kFsdp2InFp32 + ", tp_size: 2, sequence_parallel: true}");
  topologies.emplace_back(2, kFsdp2InFp32 + ", activation_checkpointing: full}");
  topologies.emplace_back(2, "{strategy: single, " + two_stages("zb1p") + "}");
  runs.pretrained = std::string(HEDDLE_SOURCE_DIR) + "/tests/golden/nemotron_h";
  expect_alike(section, topologies);
}

TEST_F(LoraJoinedRuns, TrainFourBitBasesEquallyOnEveryTopology) {
  expect_alike("{dim: 3}\nquantization: {load_in_4bit: true, bnb_4bit_compute_dtype: float32}",
               {{2, kFsdp2InFp32 + "}"}, {2, "{strategy: single, " + two_stages("zb1p") + "}"}});
}

TEST_F(LoraJoinedRuns, ResumeBitForBitAndOnOtherRanks) {
  expect_resumes(runs, with("{dim: 3}", kFsdp2InFp32 + "}", 2),
                 {with("{dim: 3}", "{strategy: single, tp_size: 2}", 2)});
}

// Files have the joined layer's names. When read, each part of the weight gets its rows of s B A.
TEST_F(LoraJoinedRuns, SaveAdaptersThatPeftReadsAndHeddleMerges) {
  runs.train(with("{dim: 3, alpha: 6}", kFsdp2InFp32 + "}", 2), "run", 4);
  const auto directory = runs / "run/epoch_0_step_3/model";
  const auto saved = tensors_of(directory), base = tensors_of(runs / "base/epoch_0_step_1/model");
  const SafetensorsFile file(directory / "adapter_model.safetensors");
  EXPECT_EQ(file.tensors().size(), 2U * 4 * 3);
  const std::string attention = "model.layers.2.self_attn.", key = "base_model.model." + attention;
  const at::Tensor a = read_tensor(file, key + "qkv_proj.lora_A.weight"),
                   b = read_tensor(file, key + "qkv_proj.lora_B.weight");
  EXPECT_TRUE(a.equal(saved.at(attention + "q_proj.lora_A.weight")));
  EXPECT_EQ(saved.count(attention + "k_proj.lora_A.weight"), 0U);
  const PreparedModel model = open_pretrained(runs / "run", built_plugins());
  int64_t row = 0;
  for (const std::string part : {"q_proj", "k_proj", "v_proj"}) {
    const at::Tensor up = saved.at(attention + part + ".lora_B.weight");
    EXPECT_TRUE(b.narrow(0, row, up.size(0)).equal(up)) << part;
    row += up.size(0);
    const at::Tensor want = base.at(attention + part + ".weight") + at::matmul(up, a) * 2;
    EXPECT_TRUE(
        box_of(model.source, attention + part + ".weight", want.sizes().vec()).allclose(want, 1e-5, 1e-6))
        << part;
  }
  EXPECT_EQ(b.size(0), row);
  const auto config = nlohmann::json::parse(std::ifstream(directory / "adapter_config.json"));
  EXPECT_THAT(config["target_modules"], Contains(attention + "qkv_proj"));
  EXPECT_THAT(config["target_modules"], Contains("model.layers.0.mlp.gate_up_proj"));
  EXPECT_EQ(config.count("fan_in_fan_out"), 0U);
}

}  // namespace
}  // namespace heddle::tests
