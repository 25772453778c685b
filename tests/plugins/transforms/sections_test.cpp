// Top-level sections that plugins read: errors with lines, checkpoints, exports, topologies.
#include <ATen/ops/empty.h>
#include <ATen/ops/ones_like.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>

#include "heddle/base/error.h"
#include "heddle/checkpoint/safetensors.h"
#include "lib/run/model/prepared_model.h"
#include "plugins/whole_runs.h"

namespace heddle::tests {
namespace {

using ::testing::HasSubstr;

const std::string kHello =
    "plugins: [" HEDDLE_BINARY_DIR "/tests/examples/libheddle_template_transform.so]\nhello: ";

Topology run_with(const std::string& sections, const std::string& distributed = "{strategy: single}",
                  int ranks = 1) {
  return {"run", ranks, distributed, sections};
}

// Trains one step with the transform of tests/bad_plugins/faults, and returns the exported model's directory.
std::filesystem::path exported_with_faulty(const WholeRuns& runs) {
  train_recipe("model: {config: " + runs.model +
                   "}\nplugins: [" HEDDLE_BINARY_DIR
                   "/tests/bad_plugins/libheddle_faulty_transform.so]\n"
                   "faulty: {}\ndataset: {file_pattern: " +
                   (runs / "train.bin").string() +
                   ", seq_len: 7}\nstep_scheduler: {max_steps: 1}\ncheckpoint: {checkpoint_dir: " +
                   (runs / "run").string() + "}\n",
               1);
  return runs / "run/epoch_0_step_0/model/consolidated";
}

TEST(Transforms, AreFoundIfTheExportHoldsTheirParameters) {
  const WholeRuns runs;
  const HfWeights weights(exported_with_faulty(runs));
  EXPECT_THAT(weights.names(), ::testing::Contains("faulty_scale.weight"));
  EXPECT_THAT(weights.names(), ::testing::Contains("model.norm.weight"));
}

TEST(Transforms, AddAndReplaceKeysOfTheExportedConfigJson) {
  const WholeRuns runs;
  setenv("HEDDLE_FAULT", "sets_config_keys", 1);
  const Node keys = config::read((exported_with_faulty(runs) / "config.json").string());
  unsetenv("HEDDLE_FAULT");
  ASSERT_NE(keys.find("faulty_scales"), nullptr);
  EXPECT_EQ(keys.find("faulty_scales")->as_integer(), 3);
  EXPECT_EQ(keys.find("max_position_embeddings")->as_integer(), 77);
  EXPECT_EQ(keys.find("model_type")->as_text(), "qwen2");
}

// A run that starts from a checkpoint's weights has the parameters that a transform added there. With the
// weights of a model without them, it initializes them.
TEST(Transforms, FindTheirParametersInTheFilesOfAModel) {
  const WholeRuns runs;
  runs.train(run_with(kHello + "{}"), "with", 4);
  runs.train(run_with(""), "without", 1);
  for (const bool there : {true, false}) {
    const std::string directory = (runs / (there ? "with" : "without")).string();
    const Node root = config::read_text(
        "model: {pretrained_model_name_or_path: " + directory + "}\n" + kHello + "{}\n", "run.yaml");
    PluginRegistry plugins = open_plugins(root, Log());
    const Recipe recipe = with_plugin_sections(read_recipe(root), plugins);
    std::vector<std::string> warnings;
    const auto [model, units] = apply_transforms(prepare_model(recipe, plugins, warnings), false, warnings);
    int64_t gains = 0;
    for (const auto& unit : units)
      for (const ParameterSlot& slot : unit->parameters()) {
        Shard shard = whole_shard(slot, {});
        shard.tensor = at::empty(slot.tensor->sizes(), slot.tensor->scalar_type());
        if (slot.name.find("hello_gain") == slot.name.npos) {
          EXPECT_TRUE(model.source(shard)) << slot.name;
          continue;
        }
        ++gains;
        EXPECT_EQ(model.source(shard), there) << slot.name;
        if (there) {
          EXPECT_FALSE(shard.tensor.equal(at::ones_like(shard.tensor))) << "trained for four steps";
        }
      }
    EXPECT_EQ(gains, 3);
  }
}

// A gain that is a child of a layer is sharded, split for a pipeline and reduced like the layer's own
// weights.
TEST(Transforms, TrainEquallyOnEveryTopologyWithAddedChildren) {
  expect_alike_on(WholeRuns(), kHello + "{train_base: true}\n",
                  {{2, kFsdp2InFp32 + "}"},
                   {2, "{strategy: single, tp_size: 2}"},
                   {2, kFsdp2InFp32 + ", tp_size: 2, sequence_parallel: true}"},
                   {2, "{strategy: single, " + two_stages("1f1b") + "}"}});
}

TEST(Transforms, FreezeTheBaseAndSaveOnlyTheirParameters) {
  const WholeRuns runs;
  const Topology topology = run_with(kHello + "{}", "{strategy: fsdp2}", 2);
  expect_resumes(runs, topology);
  const auto first = tensors_of(runs / "straight/epoch_0_step_3/model"),
             last = tensors_of(runs / "straight/epoch_1_step_7/model");
  for (const auto& [name, tensor] : first)
    EXPECT_EQ(tensor.equal(last.at(name)), name.find("hello_gain") == name.npos) << name;
  for (const auto& [name, tensor] : tensors_of(runs / "straight/epoch_1_step_7/optim"))
    EXPECT_THAT(name, HasSubstr("hello_gain"));
}

}  // namespace
}  // namespace heddle::tests
