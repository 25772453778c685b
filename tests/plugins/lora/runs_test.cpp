// Whole runs with adapters: equal on every topology, an unchanged base, and checkpoints with only adapters.
#include <ATen/ops/empty_like.h>
#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "heddle/checkpoint/safetensors.h"
#include "plugins/whole_runs.h"

namespace heddle::tests {
namespace {

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

TEST_F(LoraRuns, AreEqualOnEveryTopology) {
  const std::string tensor = ", tp_size: 2, sequence_parallel: true";
  expect_alike_on(
      runs, "peft: {match_all_linear: true, dim: 5}\n",
      {{2, "{strategy: ddp}"},
       {2, kFsdp2InFp32 + "}"},
       {2, "{strategy: megatron_fsdp}"},
       {2, "{strategy: megatron}"},
       {2, kFsdp2InFp32 + ", " + two_stages("1f1b") + "}"},
       {2, "{strategy: single, tp_size: 2}"},
       {2, kFsdp2InFp32 + tensor + "}"},
       {2, kFsdp2InFp32 + tensor + ", enable_async_tensor_parallel: true}"},
       {2, kFsdp2InFp32 + ", cp_size: 2}"},
       {4, kFsdp2InFp32 + ", tp_size: 2, " + two_stages("1f1b") + ", activation_checkpointing: full}"}});
}

TEST_F(LoraRuns, StartWithTheLossOfTheBaseAndTrainOnlyAdapters) {
  const Told full = runs.train({"full", 1, "{strategy: single}"}, "full", 1);
  const Told adapters = runs.train(peft("{}"), "adapters", 5);
  EXPECT_EQ(adapters.losses.front(), full.losses.front());
  for (const char* part : {"model", "optim"})
    for (const auto& [name, tensor] : tensors_of(runs / "adapters/epoch_1_step_4" / part))
      EXPECT_TRUE(is_adapter(name)) << name;
  for (const auto& [name, tensor] : model_of("adapters", "epoch_1_step_4"))
    EXPECT_GT(tensor.abs().min().item<double>(), 0) << name;
}

// A model with random weights must be saved completely.
TEST_F(LoraRuns, SaveAnUnchangedBaseWithoutFiles) {
  runs.pretrained = "";
  runs.train(peft("{}", kFsdp2InFp32 + "}", 2), "random", 5);
  const auto first = model_of("random", "epoch_0_step_3"), last = model_of("random", "epoch_1_step_4");
  EXPECT_EQ(first.count("model.embed_tokens.weight"), 1u);
  for (const auto& [name, tensor] : first) EXPECT_EQ(tensor.equal(last.at(name)), !is_adapter(name)) << name;
}

// The run in the directory may continue.
TEST_F(LoraRuns, NameTheCheckpointOfTheirBase) {
  runs.pretrained = "base";
  runs.train(peft("{target_modules: ['*.q_proj']}"), "run", 1);
  std::ifstream text(runs / "run/epoch_0_step_0/model/adapter_config.json");
  EXPECT_EQ(nlohmann::json::parse(text)["base_model_name_or_path"], (runs / "base/epoch_0_step_1").string());
}

// The embedding stays unchanged, as in PEFT.
TEST_F(LoraRuns, AdaptOnlyTheHeadIfItIsTied) {
  runs.pretrained = "";
  runs.model.insert(runs.model.size() - 1, ", tie_word_embeddings: true");
  runs.train({"base", 1, "{strategy: single}"}, "tied", 1);
  runs.pretrained = "tied/epoch_0_step_0";
  for (const std::string section :
       {"{target_modules: [lm_head], dim: 3}", "{match_all_linear: true, dim: 2, use_dora: true}"}) {
    expect_alike_on(runs, "peft: " + section + "\n",
                    {{2, "{strategy: ddp}"},
                     {2, kFsdp2InFp32 + "}"},
                     {2, kFsdp2InFp32 + ", activation_checkpointing: full}"}});
    EXPECT_EQ(tensors_of(runs / "alone/LATEST/model").count("lm_head.lora_A.weight"), 1U);
  }
}

TEST_F(LoraRuns, ResumeBitForBitAndOnOtherRanks) {
  expect_resumes(runs, peft("{}", kFsdp2InFp32 + "}", 2), {peft("{}", "{strategy: single, tp_size: 2}", 2)});
}

TEST_F(LoraRuns, RefuseToResumeWithOtherAdapters) {
  runs.train(peft("{}"), "run", 4);
  for (const char* other : {"{target_modules: '*.q_proj'}", "{alpha: 64}"}) {
    const std::string said = runs.refusal(peft(other), "run", "LATEST");
    EXPECT_THAT(said, ::testing::HasSubstr("in the run that saved epoch_0_step_3 and is ")) << other;
    EXPECT_THAT(said, ::testing::HasSubstr(" now, so the trained parameters would be lost")) << other;
  }
}

TEST_F(LoraRuns, WriteAnAdapterThatPeftReads) {
  runs.train(peft("{target_modules: ['*.q_proj', lm_head], dim: 3, alpha: 6}",
                  kFsdp2InFp32 + ", " + two_stages("1f1b") + "}", 2),
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
