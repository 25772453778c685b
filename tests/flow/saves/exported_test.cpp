// Exports of a run, and models from other sources that a run accepts.
#include <gmock/gmock.h>

#include <filesystem>

#include "flow/model_files.h"
#include "flow/stops/started.h"
#include "flow/training_files.h"
#include "tests/main/with_all.h"

namespace flow {
namespace {

HEDDLE_WITH_ALL("Exported.LeavesTheCheckpoint*");

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// The export of every topology has the loss with which its run ended, read on one rank.
TEST(Exported, HasTheLossOfTheRun) {
  const TrainingFiles files;
  files.write("held_out.txt",
              "heald loom shed warp reed weft beam pick\nweft warp shed loom reed heald beam\n");
  ASSERT_EQ(heddle({"data", files.path("held_out.txt"), "--out", files.path("held_out.bin")}).status, 0);
  const std::string precise = "mp_policy: {param_dtype: float32, reduce_dtype: float32}";
  const std::pair<const char*, std::string> topologies[] = {
      {"fsdp2", "{strategy: fsdp2, " + precise + "}"},
      {"tp", "{strategy: fsdp2, tp_size: 2, " + precise + "}"},
      {"pp", "{strategy: ddp, pp_size: 2, pipeline: {pp_schedule: 1f1b, pp_microbatch_size: 1}}"},
      {"zero3", "{strategy: megatron_fsdp, zero_dp_strategy: 3}"},
      {"tied", "{strategy: ddp, pp_size: 2, pipeline: {pp_schedule: 1f1b, pp_microbatch_size: 1}}"}};
  const Words even = {"--model.config.num_attention_heads", "2", "--model.config.num_key_value_heads", "2"};
  const Words held_out = {"--validation_dataset",
                          "{file_pattern: " + files.path("held_out.bin") + ", seq_len: 16}"};
  for (const auto& [name, distributed] : topologies) {
    const std::string again = std::string(name) + "_again";
    const bool tied = std::string(name) == "tied";
    const Words words = plus({"--distributed", distributed, "--step_scheduler.max_steps", "2",
                              "--model.config.tie_word_embeddings", tied ? "true" : "false"},
                             held_out);
    const Outcome run = heddle(plus(files.train(name, {"--nproc-per-node", "2"}), plus(even, words)));
    ASSERT_EQ(run.status, 0) << run.error;
    const std::string exported = files.path(std::string(name) + "/LATEST/model/consolidated");
    const std::string bytes = read_text(exported + "/model.safetensors");
    EXPECT_EQ(bytes.find("lm_head.weight") == std::string::npos, tied) << name;
    const Words still = {"--optimizer",   "{lr: 0, weight_decay: 0}", "--step_scheduler.max_steps", "1",
                         "--distributed", "{strategy: single}",       "--nproc-per-node",           "1"};
    const Outcome other =
        heddle(plus(files.train(again, held_out),
                    plus({"--model", "{pretrained_model_name_or_path: " + exported + "}"}, still)));
    ASSERT_EQ(other.status, 0) << other.error;
    const double want = column(files.path(std::string(name) + "/validation.jsonl"), "loss").back();
    EXPECT_NEAR(column(files.path(again + "/validation.jsonl"), "loss").back(), want, 2e-5 * want) << name;
  }
}

// The model can still be exported from the checkpoint.
TEST(Exported, LeavesTheCheckpointWhenTheExportTimesOut) {
  const TrainingFiles files;
  const Words words = {"--nproc-per-node", "2", "--step_scheduler.max_steps", "2"};
  ASSERT_EQ(heddle(files.train("whole", words)).status, 0);
  for (const char* async : {"false", "true"}) {
    const std::string run = std::string("late_") + async, last = files.path(run + "/epoch_0_step_1");
    const Outcome late = heddle(files.train(run, plus(words, {"--checkpoint.consolidation_timeout_minutes",
                                                              "1e-9", "--checkpoint.is_async", async})));
    EXPECT_EQ(late.status, 1);
    EXPECT_EQ(late.error, "error[io] " + last +
                              "/model/consolidated: the export is not done after 1e-09 minutes\n"
                              "  hint: the checkpoint is saved without the export. Run heddle convert " +
                              last +
                              " MODEL to export the model. To avoid the error: raise "
                              "checkpoint.consolidation_timeout_minutes\n");
    EXPECT_EQ(fs::read_symlink(files.path(run + "/LATEST")), "epoch_0_step_1");
    EXPECT_FALSE(fs::exists(last + "/model/consolidated"));
    EXPECT_FALSE(fs::exists(last + ".incomplete"));
    ASSERT_EQ(heddle({"convert", last, files.path(run + "/made")}).status, 0);
    expect_same_files(files.path("whole/LATEST/model/consolidated"), files.path(run + "/made"));
    EXPECT_EQ(heddle(files.train(run, words)).status, 0);
  }
}

TEST(Exported, LoadsInTransformers4) {
  const TrainingFiles files;
  const Words steps = {"--nproc-per-node", "2", "--step_scheduler.max_steps", "1"};
  ASSERT_EQ(heddle(plus(files.train("all"), steps)).status, 0);
  const Outcome first =
      heddle(plus(files.train("first", {"--checkpoint.single_rank_consolidation", "true"}), steps));
  ASSERT_EQ(first.status, 0) << first.error;
  expect_same_files(files.path("all/LATEST/model/consolidated"),
                    files.path("first/LATEST/model/consolidated"));
  fs::copy(kGolden + "llama_odd", files.path("original"));
  ASSERT_EQ(
      heddle(train(files, "older", files.path("original"), {"--checkpoint.v4_compatible", "true"})).status,
      0);
  const std::string config = read_text(files.path("older/LATEST/model/consolidated/config.json"));
  for (const char* key : {"\"torch_dtype\": \"float32\"", "\"rope_theta\": 500000.0", "\"rope_scaling\": {"})
    EXPECT_THAT(config, HasSubstr(key));
}

TEST(Pretrained, WarnsOfUnusedTensorsAndRefusesMissingOnes) {
  const TrainingFiles files;
  fs::copy(kGolden + "llama_odd", files.path("model"));
  const auto layers = [&](const std::string& count) {
    std::string config = read_text(kGolden + "llama_odd/config.json");
    const std::string key = "\"num_hidden_layers\": ";
    config.replace(config.find(key), key.size() + 1, key + count);
    files.write("model/config.json", config);
    return heddle(train(files, "run" + count, files.path("model")));
  };
  const Outcome fewer = layers("2");
  EXPECT_EQ(fewer.status, 0) << fewer.error;
  EXPECT_THAT(fewer.error, HasSubstr("warning: " + files.path("model") +
                                     ": the model does not use 16 of the tensors "
                                     "(model.layers.2.input_layernorm.weight, "));
  EXPECT_THAT(fewer.error, HasSubstr(", ...); they are not loaded and not saved"));
  const Outcome more = layers("4");
  EXPECT_EQ(more.status, 2);
  EXPECT_THAT(more.error, HasSubstr("error[input] " + files.path("model") +
                                    ": the weights hold no tensor \"model.layers.3."));
}

}  // namespace
}  // namespace flow
