// Whole runs with adapters: alike on every topology, the base untouched, checkpoints of adapters alone.
#include <ATen/ops/empty_like.h>
#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "heddle/checkpoint/safetensors.h"
#include "plugins/whole_runs.h"

namespace heddle::tests {
namespace {

const std::string kSharded = "{strategy: fsdp2, mp_policy: {param_dtype: float32, reduce_dtype: float32}";
const std::string kPipeline = "pp_size: 2, pipeline: {pp_schedule: 1f1b, pp_microbatch_size: 1}";

Topology peft(const std::string& section, const std::string& distributed = "{strategy: single}",
              int ranks = 1) {
  return {"run", ranks, distributed, "peft: " + section + "\n"};
}

bool is_adapter(const std::string& name) {
  return name.find(".lora_") != name.npos;
}

class LoraRuns : public ::testing::Test {
 protected:
  LoraRuns() {
    runs.train({"base", 1, "{strategy: single}"}, "base", 2);
    runs.pretrained = "base/epoch_0_step_1";
  }

  std::map<std::string, at::Tensor> model_of(const std::string& run, const std::string& step) const {
    return tensors_of(runs / run / step / "model");
  }

  WholeRuns runs;
};

TEST_F(LoraRuns, AreAlikeOnEveryTopology) {
  const std::string section = "{match_all_linear: true, dim: 5}";
  const Told one = runs.train(peft(section), "one", 5);
  const auto want = model_of("one", "epoch_1_step_4");
  const std::vector<Topology> others = {
      peft(section, "{strategy: ddp}", 2),
      peft(section, kSharded + "}", 2),
      peft(section, "{strategy: megatron_fsdp}", 2),
      peft(section, "{strategy: megatron}", 2),
      peft(section, kSharded + ", " + kPipeline + "}", 2),
      peft(section, "{strategy: single, tp_size: 2}", 2),
      peft(section, kSharded + ", tp_size: 2, sequence_parallel: true}", 2),
      peft(section, kSharded + ", tp_size: 2, sequence_parallel: true, enable_async_tensor_parallel: true}",
           2),
      peft(section, kSharded + ", cp_size: 2}", 2),
      peft(section, kSharded + ", tp_size: 2, " + kPipeline + ", activation_checkpointing: full}", 4)};
  for (size_t at = 0; at < others.size(); ++at) {
    SCOPED_TRACE(others[at].distributed);
    const std::string name = "other" + std::to_string(at);
    const Told other = runs.train(others[at], name, 5);
    ASSERT_EQ(other.losses.size(), one.losses.size());
    for (size_t i = 0; i < one.losses.size(); ++i) {
      EXPECT_NEAR(other.losses[i], one.losses[i], 2e-5 * one.losses[i]);
      EXPECT_NEAR(other.norms[i], one.norms[i], 2e-4 * one.norms[i]);
    }
    const auto got = model_of(name, "epoch_1_step_4");
    ASSERT_EQ(got.size(), want.size());
    for (const auto& [key, tensor] : want) EXPECT_TRUE(tensor.allclose(got.at(key), 1e-3, 1e-4)) << key;
  }
}

TEST_F(LoraRuns, BeginWithTheLossOfTheBaseAndTrainAdaptersAlone) {
  const Told full = runs.train({"full", 1, "{strategy: single}"}, "full", 1);
  const Told adapters = runs.train(peft("{}"), "adapters", 5);
  EXPECT_EQ(adapters.losses.front(), full.losses.front());
  for (const char* part : {"model", "optim"})
    for (const auto& [name, tensor] : tensors_of(runs / "adapters/epoch_1_step_4" / part))
      EXPECT_TRUE(is_adapter(name)) << name;
  for (const auto& [name, tensor] : model_of("adapters", "epoch_1_step_4"))
    EXPECT_GT(tensor.abs().min().item<double>(), 0) << name;
}

// Of a model with random weights nothing can be left out.
TEST_F(LoraRuns, KeepABaseWithoutFilesInCheckpointsAsItWas) {
  runs.pretrained = "";
  runs.train(peft("{}", kSharded + "}", 2), "random", 5);
  const auto first = model_of("random", "epoch_0_step_3"), last = model_of("random", "epoch_1_step_4");
  EXPECT_EQ(first.count("model.embed_tokens.weight"), 1u);
  for (const auto& [name, tensor] : first) EXPECT_EQ(tensor.equal(last.at(name)), !is_adapter(name)) << name;
}

// The run that the directory holds may go on.
TEST_F(LoraRuns, NameTheCheckpointThatTheirBaseIs) {
  runs.pretrained = "base";
  runs.train(peft("{target_modules: ['*.q_proj']}"), "run", 1);
  std::ifstream text(runs / "run/epoch_0_step_0/model/adapter_config.json");
  EXPECT_EQ(nlohmann::json::parse(text)["base_model_name_or_path"], (runs / "base/epoch_0_step_1").string());
}

// As in PEFT the embedding does not see it.
TEST_F(LoraRuns, OfATiedHeadAreTheHeadsAlone) {
  runs.pretrained = "";
  runs.model.insert(runs.model.size() - 1, ", tie_word_embeddings: true");
  runs.train({"base", 1, "{strategy: single}"}, "tied", 1);
  runs.pretrained = "tied/epoch_0_step_0";
  for (const std::string section :
       {"{target_modules: [lm_head], dim: 3}", "{match_all_linear: true, dim: 2, use_dora: true}"}) {
    const Told one = runs.train(peft(section), "one", 5);
    EXPECT_EQ(model_of("one", "epoch_1_step_4").count("lm_head.lora_A.weight"), 1U);
    for (const std::string& distributed : std::vector<std::string>{
             "{strategy: ddp}", kSharded + "}", kSharded + ", activation_checkpointing: full}"}) {
      SCOPED_TRACE(section + distributed);
      const Told other = runs.train(peft(section, distributed, 2), "other", 5);
      for (size_t i = 0; i < one.losses.size(); ++i) {
        EXPECT_NEAR(other.losses[i], one.losses[i], 2e-5 * one.losses[i]);
        EXPECT_NEAR(other.norms[i], one.norms[i], 2e-4 * one.norms[i]);
      }
      std::filesystem::remove_all(runs / "other");
    }
    std::filesystem::remove_all(runs / "one");
  }
}

TEST_F(LoraRuns, ResumeBitForBitAndOnOtherRanks) {
  const Topology topology = peft("{}", kSharded + "}", 2);
  const Told straight = runs.train(topology, "straight", 8);
  runs.train(topology, "resumed", 4);
  EXPECT_EQ(runs.train(topology, "resumed", 8, "LATEST").losses, straight.losses);
  EXPECT_EQ(checksums_of(runs / "resumed/epoch_1_step_7"), checksums_of(runs / "straight/epoch_1_step_7"));
  runs.train(topology, "moved", 4);
  const Told moved = runs.train(peft("{}", "{strategy: single, tp_size: 2}", 2), "moved", 8, "LATEST");
  for (size_t i = 0; i < straight.losses.size(); ++i)
    EXPECT_NEAR(moved.losses[i], straight.losses[i], 2e-5 * straight.losses[i]);
}

TEST_F(LoraRuns, WithOtherAdaptersAreNotResumed) {
  runs.train(peft("{}"), "run", 4);
  for (const char* other : {"{target_modules: '*.q_proj'}", "{alpha: 64}"}) {
    std::vector<std::string> refusals;
    runs.train(peft(other), "run", 8, "LATEST", &refusals);
    ASSERT_FALSE(refusals.empty()) << other;
    EXPECT_THAT(refusals[0], ::testing::HasSubstr("in the run that saved epoch_0_step_3, and is "));
    EXPECT_THAT(refusals[0], ::testing::HasSubstr(" now: what was trained would be lost"));
  }
}

TEST_F(LoraRuns, WriteAnAdapterAsPeftReadsIt) {
  runs.train(
      peft("{target_modules: ['*.q_proj', lm_head], dim: 3, alpha: 6}", kSharded + ", " + kPipeline + "}", 2),
      "run", 4);
  const auto directory = runs / "run/epoch_0_step_3/model";
  const auto saved = tensors_of(directory);
  const SafetensorsFile file(directory / "adapter_model.safetensors");
  EXPECT_EQ(file.tensors().size(), saved.size());
  for (const auto& [name, tensor] : saved) {
    const at::Tensor read = at::empty_like(tensor);
    file.read("base_model.model." + name, std::vector<int64_t>{0, 0}, read);
    EXPECT_TRUE(read.equal(tensor)) << name;
  }
  std::ifstream text(directory / "adapter_config.json");
  const auto config = nlohmann::json::parse(text);
  EXPECT_EQ(config.dump(), R"({"base_model_name_or_path":")" + (runs / runs.pretrained).string() +
                               R"(","bias":"none","lora_alpha":6,"peft_type":"LORA","r":3,"target_modules":)"
                               R"(["lm_head","model.layers.0.self_attn.q_proj",)"
                               R"("model.layers.1.self_attn.q_proj","model.layers.2.self_attn.q_proj"],)"
                               R"("task_type":"CAUSAL_LM","use_dora":false})");
}

}  // namespace
}  // namespace heddle::tests
