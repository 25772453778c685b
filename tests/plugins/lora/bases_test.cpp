// Resumed runs use the base model, the teacher and the parameters of the run that saved the checkpoint, or
// are refused.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "heddle/base/text.h"
#include "heddle/checkpoint/sharded.h"
#include "heddle/mesh/call.h"
#include "lib/run/spec/position.h"
#include "plugins/distill/distill_runs.h"
#include "plugins/whole_runs.h"
#include "thrown.h"

namespace heddle::tests {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const Topology kAdapters = {"run", 1, "{strategy: single}", "peft: {dim: 2}\n"};
constexpr const char* kAccept =
    ", or start a new run in another checkpoint.checkpoint_dir. --checkpoint.accept_other_base true resumes "
    "with the new weights";

void copy_over(const fs::path& from, const fs::path& to) {
  fs::remove_all(to);
  fs::copy(from, to, fs::copy_options::recursive);
}

std::string weights_of(const fs::path& checkpoint) {
  const ModelIdentity base = read_position(checkpoint / kPositionFile).bases.at("model");
  return bytes_text(base.bytes) + " of digest " + base.digest;
}

// Four steps of adapters on `base`, a copy of the first of two models.
class LoraBases : public ::testing::Test {
 protected:
  LoraBases() {
    runs.train({"first", 1, "{strategy: single}"}, "first", 1);
    runs.train({"second", 1, "{strategy: single}"}, "second", 2);
    copy_over(runs / "first/epoch_0_step_0", runs / "base");
    runs.pretrained = "base";
    runs.train(kAdapters, "run", 4);
  }

  WholeRuns runs;
};

TEST_F(LoraBases, CanBeACopyInAnotherDirectory) {
  const Told straight = runs.train(kAdapters, "straight", 8);
  fs::rename(runs / "base", runs / "moved");
  runs.pretrained = "moved";
  EXPECT_EQ(runs.train(kAdapters, "run", 8).losses, straight.losses);
}

TEST_F(LoraBases, AreRefusedInAnotherDirectoryWithOtherWeights) {
  runs.pretrained = "second/epoch_0_step_1";
  const std::string said = runs.refusal(kAdapters, "run", "LATEST");
  EXPECT_THAT(
      said, StartsWith("error[config] run.yaml:5 model: epoch_0_step_3 was trained with the base model in " +
                       (runs / "base/model").string() + " (" + weights_of(runs / "run/epoch_0_step_3") +
                       "), and " + (runs / "second/epoch_0_step_1/model").string() + " has other weights ("));
  EXPECT_TRUE(said.ends_with("\n  hint: set model.pretrained_model_name_or_path to " +
                             (runs / "base/model").string() + kAccept))
      << said;
}

TEST_F(LoraBases, AreRefusedWhenTheirWeightsHaveChanged) {
  copy_over(runs / "second/epoch_0_step_1", runs / "base");
  const std::string said = runs.refusal(kAdapters, "run", "LATEST");
  EXPECT_THAT(said, HasSubstr("run.yaml:5 model: epoch_0_step_3 was trained with other weights of the base "
                              "model in " +
                              (runs / "base/model").string() + " (" +
                              weights_of(runs / "run/epoch_0_step_3") + ") than the directory holds now ("));
  EXPECT_TRUE(said.ends_with(std::string("\n  hint: restore the former files") + kAccept)) << said;
}

TEST_F(LoraBases, AreAcceptedWithAWarningIfTheRecipeAllowsIt) {
  const Told straight = runs.train(kAdapters, "straight", 8);
  copy_over(runs / "second/epoch_0_step_1", runs / "base");
  runs.checkpoint = ", accept_other_base: true";
  EXPECT_THAT(runs.warnings(kAdapters, "run", 8),
              Contains(StartsWith("epoch_0_step_3 was trained with other weights of the base model in ")));
  const Told accepted = runs.train(kAdapters, "run", 8);
  EXPECT_EQ(accepted.losses.size(), 8U);
  EXPECT_NE(accepted.losses, straight.losses);
}

TEST_F(LoraBases, AreUnknownInAnOlderCheckpoint) {
  const fs::path file = runs / "run/epoch_0_step_3" / kPositionFile;
  Position position = read_position(file);
  position.bases.clear();
  std::ofstream(file) << to_json(position);
  EXPECT_THAT(runs.warnings(kAdapters, "run", 8),
              Contains("epoch_0_step_3 does not record which weights the base model had, so they cannot be "
                       "compared with those of " +
                       (runs / "base/model").string()));
}

// RUN/LATEST points to another checkpoint once that run continues.
TEST_F(LoraBases, ResolveAPointerAtTheFirstStart) {
  runs.pretrained = "";
  runs.train({"moving", 1, "{strategy: single}"}, "moving", 4);
  runs.pretrained = "moving/LATEST/model";
  runs.train(kAdapters, "pointed", 4);
  const std::string found = (runs / "moving/epoch_0_step_3/model").string();
  std::ifstream config(runs / "pointed/epoch_0_step_3/model/adapter_config.json");
  EXPECT_EQ(nlohmann::json::parse(config)["base_model_name_or_path"], found);
  runs.pretrained = "";
  runs.train({"moving", 1, "{strategy: single}"}, "moving", 8);
  runs.pretrained = "moving/LATEST/model";
  EXPECT_THAT(
      runs.refusal(kAdapters, "pointed", "LATEST"),
      AllOf(HasSubstr("was trained with the base model in " + found + " ("),
            HasSubstr("and " + (runs / "moving/epoch_1_step_7/model").string() + " has other weights"),
            HasSubstr("hint: set model.pretrained_model_name_or_path to " + found + ", or")));
  runs.pretrained = "moving/epoch_0_step_3/model";
  EXPECT_EQ(runs.train(kAdapters, "pointed", 8).losses.size(), 8U);
}

TEST_F(LoraBases, RefuseAnotherQuantization) {
  const auto packed = [](const std::string& more) {
    return Topology{
        "run", 1, "{strategy: single}",
        "peft: {dim: 2}\nquantization: {load_in_4bit: true, bnb_4bit_compute_dtype: float32" + more + "}\n"};
  };
  runs.train(packed(""), "packed", 4);
  const std::string start =
      "epoch_0_step_3 was trained with its base model in the format 'quantization nf4, double "
      "quantisation', and the run has it in ";
  EXPECT_THAT(runs.refusal(packed(", bnb_4bit_use_double_quant: false"), "packed", "LATEST"),
              AllOf(HasSubstr(start + "the format 'quantization nf4' now\n  hint: restore the section, or"),
                    HasSubstr(kAccept)));
  EXPECT_THAT(runs.refusal(kAdapters, "packed", "LATEST"),
              HasSubstr(start + "the format of its files now\n"));
  EXPECT_EQ(runs.refusal(packed(", bnb_4bit_quant_storage: float32"), "packed", "LATEST"), "");
}

TEST_F(LoraBases, AreNotReadIfAllParametersTrain) {
  runs.train({"full", 1, "{strategy: single}"}, "full", 4);
  EXPECT_TRUE(read_position(runs / "full/epoch_0_step_3" / kPositionFile).bases.empty());
  fs::remove_all(runs / "base");
  copy_over(runs / "second/epoch_0_step_1", runs / "base");
  EXPECT_EQ(runs.refusal({"full", 1, "{strategy: single}"}, "full", "LATEST"), "");
}

TEST(DistillBases, AreRefusedIfTheTeacherHasOtherWeights) {
  DistillRuns runs;
  runs.checkpoint = "save_consolidated: false";
  copy_over(kGolden / "llama_tied", runs / "teacher");
  std::string keys = runs.keys("half");
  const std::string golden = (kGolden / "llama_tied").string();
  ASSERT_NE(keys.find(golden), keys.npos) << keys;
  keys.replace(keys.find(golden), golden.size(), (runs / "teacher").string());
  const Topology topology = {"one", 1, "{strategy: single}", keys};
  runs.train(topology, "run", 2);
  std::vector<std::string> said;
  runs.train(topology, "run", 3, &said);
  EXPECT_TRUE(said.empty());
  std::fstream weights(runs / "teacher/model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  weights.seekp(-4, std::ios::end).write("\0\0\0\0", 4);
  weights.close();
  runs.train(topology, "run", 4, &said);
  ASSERT_EQ(said.size(), 1U);
  EXPECT_THAT(said.front(), AllOf(HasSubstr(" teacher_model: epoch_0_step_"),
                                  HasSubstr(" was trained with other weights of the model of the section "
                                            "teacher_model in " +
                                            (runs / "teacher").string() + " ("),
                                  HasSubstr("\n  hint: restore the former files, or start a new run")));
}

// Adapters of a base with random weights are saved together with the base.
TEST(LoraLost, ParametersOfACheckpointAreNotDropped) {
  WholeRuns runs;
  runs.train({"run", 1, "{strategy: single}", "peft: {target_modules: '*.q_proj', dim: 2}\n"}, "run", 4);
  EXPECT_EQ(runs.refusal({"run", 1, "{strategy: single}"}, "run", "LATEST"),
            "error[config] checkpoint.restore_from: " + (runs / "run/epoch_0_step_3/model").string() +
                " holds 'model.layers.0.self_attn.q_proj.lora_A.weight' and 5 more parameters, which this "
                "run's model does not have, so the trained parameters would be lost\n  hint: restore the "
                "sections that add parameters, such as peft, or resume with the version of heddle that saved "
                "the checkpoint, or start a new run in another checkpoint.checkpoint_dir");
}

// Adds tensors to a checkpoint, and keeps the checkpoint complete.
void add_to_checkpoint(const fs::path& checkpoint, const std::map<std::string, at::Tensor>& added) {
  auto tensors = tensors_of(checkpoint / "model");
  tensors.insert(added.begin(), added.end());
  std::vector<checkpoint::Part> parts;
  for (const auto& [name, tensor] : tensors)
    parts.push_back({name, tensor, tensor.sizes().vec(), std::vector<int64_t>(tensor.dim(), 0)});
  AloneRendezvous alone;
  checkpoint::write_sharded(checkpoint / "model", "model", parts, alone, "added");
  Position position = read_position(checkpoint / kPositionFile);
  position.parts["model"] = checkpoint::read_manifest(checkpoint / "model" / checkpoint::kManifest).sum;
  std::ofstream(checkpoint / kPositionFile) << to_json(position);
}

// An older heddle gave each part of a joined layer its own A under the same section.
TEST(LoraLost, AdaptersOfPartsOfJoinedLayersAreNotDropped) {
  WholeRuns runs;
  runs.pretrained = HEDDLE_SOURCE_DIR "/tests/golden/phi3";
  const Topology joined = {"run", 1, "{strategy: single}",
                           "peft: {target_modules: ['*.gate_up_proj'], dim: 2}\n"};
  runs.train(joined, "run", 4);
  const fs::path saved = runs / "run/epoch_0_step_3";
  const auto tensors = tensors_of(saved / "model");
  const std::string path = "model.layers.0.mlp.";
  ASSERT_EQ(tensors.count(path + "up_proj.lora_A.weight"), 0U);
  add_to_checkpoint(saved, {});
  EXPECT_EQ(runs.refusal(joined, "run", "LATEST"), "");
  add_to_checkpoint(saved, {{path + "up_proj.lora_A.weight", tensors.at(path + "gate_proj.lora_A.weight")}});
  fs::remove_all(runs / "run/epoch_1_step_7");
  EXPECT_THAT(runs.refusal(joined, "run", "run/epoch_0_step_3"),
              HasSubstr(" holds 'model.layers.0.mlp.up_proj.lora_A.weight', which this run's model does not "
                        "have, so the trained parameters would be lost\n"));
}

}  // namespace
}  // namespace heddle::tests
