// Sections at the top of a recipe that plugins read: errors with lines, checkpoints, exports, topologies.
#include <ATen/ops/empty.h>
#include <ATen/ops/ones_like.h>
#include <gmock/gmock.h>

#include "heddle/base/error.h"
#include "heddle/checkpoint/safetensors.h"
#include "lib/run/model/prepared_model.h"
#include "plugins/whole_runs.h"

namespace heddle::tests {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

const std::string kHello =
    "plugins: [" HEDDLE_BINARY_DIR "/tests/examples/libheddle_template_transform.so]\nhello: ";

Topology run_with(const std::string& sections, const std::string& distributed = "{strategy: single}",
                  int ranks = 1) {
  return {"run", ranks, distributed, sections};
}

std::string refusal(const std::string& sections, const std::string& distributed = "{strategy: single}",
                    int ranks = 1) {
  return WholeRuns().refusal(run_with(sections, distributed, ranks));
}

TEST(PluginSections, SuggestTheNearestNameWhenNoPluginHasThem) {
  EXPECT_THAT(refusal("freze_config: {}"),
              HasSubstr("freze_config: unknown key 'freze_config'\n  hint: did you mean 'freeze_config'?"));
  EXPECT_THAT(refusal("Freeze_Config: {}"), HasSubstr("did you mean 'freeze_config'?"));
  EXPECT_THAT(refusal("tensorbord: {}"), HasSubstr("did you mean 'tensorboard'?"));
  EXPECT_THAT(refusal("optimiser: {}"), HasSubstr("did you mean 'optimizer'?"));
  EXPECT_THAT(refusal("hello: {}"), HasSubstr("hello: unknown key 'hello'\n  hint: the sections are: "));
}

TEST(PluginSections, AreReadByThePluginsSchema) {
  EXPECT_THAT(refusal(kHello + "{train_bas: true}"),
              HasSubstr("hello.train_bas: unknown key 'train_bas'\n  hint: did you mean 'train_base'?"));
  EXPECT_THAT(refusal(kHello + "{train_base: 3}"),
              HasSubstr("hello.train_base: expected true or false, got 3"));
  EXPECT_THAT(refusal(kHello + "3"), HasSubstr("hello: expected a map"));
  EXPECT_EQ(refusal(kHello + "null"), "");
  EXPECT_EQ(refusal(kHello + "{}"), "");
}

TEST(PluginSections, AreRefusedTogetherWithOtherSections) {
  const std::string both = refusal("freeze_config: {patterns: ['(']}\nclip_grad_norm: {max_norm: 0}");
  EXPECT_THAT(both, HasSubstr("freeze_config.patterns[0]: not a regular expression: '('"));
  EXPECT_THAT(both, HasSubstr("max_norm must be greater than 0"));
}

TEST(PluginSections, AreOffWithEnableFalse) {
  EXPECT_EQ(refusal("comet: {enable: false}"), "");
  EXPECT_THAT(refusal("comet: {enable: true}"), HasSubstr("unknown key 'comet'\n  hint: leave it out"));
  EXPECT_EQ(refusal("wandb: {enable: false, project: x}"), "");
  EXPECT_EQ(refusal("tensorboard: {enable: true}"), "");
  EXPECT_EQ(refusal("qat: {enable: false, qat_config: {groupsize: 2}}"), "");
  EXPECT_THAT(refusal("qat: {enable: true, qat_config: {groupsize: 2}}"),
              HasSubstr("qat.enable: unknown key 'enable'\n  hint: did you mean 'enabled'?"));
  EXPECT_THAT(refusal("tensorboard: {enable: 3}"), HasSubstr("tensorboard.enable: expected true or false"));
  EXPECT_THAT(refusal("tensorboard: {enable: false, dirr: x}"), HasSubstr("did you mean 'dir'?"));
}

TEST(Transforms, AreRefusedInAnExportWhenTheyAddParameters) {
  const WholeRuns runs;
  std::vector<std::string> refusals;
  train_recipe("model: {config: " + runs.model + "}\n" + kHello +
                   "{}\ndataset: {file_pattern: " + (runs / "train.bin").string() +
                   ", seq_len: 7}\ncheckpoint: {checkpoint_dir: " + (runs / "run").string() + "}\n",
               1, &refusals);
  ASSERT_THAT(refusals, SizeIs(1));
  EXPECT_THAT(refusals[0], HasSubstr("run.yaml:3 hello: hello adds parameters "
                                     "('model.layers.0.hello_gain.weight'), which have no place in the "
                                     "exported model\n  hint: set checkpoint.save_consolidated: false"));
}

// One that says so is exported with them, beside the model's own.
TEST(Transforms, WhoseParametersTheExportHoldsAreThere) {
  const WholeRuns runs;
  train_recipe("model: {config: " + runs.model +
                   "}\nplugins: [" HEDDLE_BINARY_DIR
                   "/tests/bad_plugins/libheddle_faulty_transform.so]\n"
                   "faulty: {}\ndataset: {file_pattern: " +
                   (runs / "train.bin").string() +
                   ", seq_len: 7}\nstep_scheduler: {max_steps: 1}\ncheckpoint: {checkpoint_dir: " +
                   (runs / "run").string() + "}\n",
               1);
  const HfWeights weights(runs / "run/epoch_0_step_0/model/consolidated");
  EXPECT_THAT(weights.names(), ::testing::Contains("faulty_scale.weight"));
  EXPECT_THAT(weights.names(), ::testing::Contains("model.norm.weight"));
}

// A run that begins with the weights of a checkpoint has what a transform added there; with those of a model
// without them it begins with their Init.
TEST(Transforms, FindWhatTheyAddedInTheFilesOfAModel) {
  const WholeRuns runs;
  runs.train(run_with(kHello + "{}"), "with", 4);
  runs.train(run_with(""), "without", 1);
  for (const bool there : {true, false}) {
    const std::string directory = (runs / (there ? "with" : "without")).string();
    const Node root = config::read_text(
        "model: {pretrained_model_name_or_path: " + directory + "}\n" + kHello + "{}\n", "run.yaml");
    PluginRegistry plugins = open_plugins(root, Log());
    Recipe recipe = read_recipe(root);
    Errors errors;
    read_plugin_sections(recipe, plugins, errors);
    std::vector<std::string> warnings;
    PreparedModel model = prepare_model(recipe, plugins, warnings);
    const Units units = first_units(model, false, warnings);
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

// A gain that is a child of a layer is sharded, cut for a pipeline and summed like the layer's own weights.
TEST(Transforms, TrainAlikeOnEveryTopologyWhenTheyAddChildren) {
  expect_alike_on(WholeRuns(), kHello + "{train_base: true}\n",
                  {{2, kFsdp2InFp32 + "}"},
                   {2, "{strategy: single, tp_size: 2}"},
                   {2, kFsdp2InFp32 + ", tp_size: 2, sequence_parallel: true}"},
                   {2, "{strategy: single, " + two_stages("1f1b") + "}"}});
}

TEST(Transforms, FreezeTheBaseAndKeepWhatTheyAddInCheckpoints) {
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
