// Models between the two kinds of directory, without training: nothing is changed on the way.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "started.h"
#include "training_files.h"

namespace flow {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Words = std::vector<std::string>;

const std::string kGolden = HEDDLE_SOURCE_DIR "/tests/golden/";

Words plus(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Outcome convert(const std::string& from, const std::string& to, const Words& more = {}) {
  return heddle(plus({"convert", from, to}, more));
}

// A run of two ranks that starts from a golden model, or goes on with `model`.
Words train(const TrainingFiles& files, const std::string& run, const std::string& model,
            const Words& more = {}) {
  return plus(files.train(run, {"--model", "{pretrained_model_name_or_path: " + model + "}",
                                "--nproc-per-node", "2", "--step_scheduler.max_steps", "2"}),
              more);
}

// The files of a model's directory that an export writes.
std::set<std::string> model_files(const std::string& directory) {
  std::set<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    const bool weights = name.starts_with("model") && !name.ends_with(".py");
    if (name == "config.json" || weights) names.insert(name);
  }
  return names;
}

void expect_same_files(const std::string& one, const std::string& other) {
  EXPECT_EQ(model_files(one), model_files(other));
  for (const std::string& name : model_files(one))
    EXPECT_TRUE(read_text(one + "/" + name) == read_text(other + "/" + name)) << one << "/" << name;
}

// Headers, indices and config.json too are those that transformers wrote.
TEST(Convert, GivesTransformersFilesBackByteForByte) {
  const TrainingFiles files;
  int ranks = 1;
  for (const char* model :
       {"llama", "llama_odd", "llama_tied", "qwen2", "qwen2_tied", "qwen3", "qwen3_tied"}) {
    const std::string sharded = files.path(std::string(model) + "_sharded"), back = files.path(model);
    const Words shared = {"--nproc-per-node", std::to_string(ranks)};
    ASSERT_EQ(convert(kGolden + model, sharded, shared).status, 0);
    const Outcome outcome = convert(sharded, back, shared);
    ASSERT_EQ(outcome.status, 0) << outcome.error;
    expect_same_files(kGolden + model, back);
    ranks = ranks % 3 + 1;
  }
}

TEST(Convert, GivesTheSameShardsBack) {
  const TrainingFiles files;
  const std::string one = files.path("one"), hf = files.path("hf"), two = files.path("two");
  ASSERT_EQ(convert(kGolden + "llama_odd", one, {"--nproc-per-node", "2"}).status, 0);
  ASSERT_EQ(convert(one, hf).status, 0);
  ASSERT_EQ(convert(hf, two, {"--nproc-per-node", "2"}).status, 0);
  for (const char* file : {"manifest.json", "shard-00001-model-00001-of-00001.safetensors",
                           "shard-00002-model-00001-of-00001.safetensors", ".hf_metadata/config.json",
                           ".hf_metadata/tensors.json"}) {
    EXPECT_TRUE(read_text(one + "/" + file) == read_text(two + "/" + file)) << file;
    EXPECT_FALSE(read_text(one + "/" + file).empty()) << file;
  }
}

TEST(Convert, TakesEveryPlaceOfACheckpointAndSaysWhatItMade) {
  const TrainingFiles files;
  ASSERT_EQ(heddle(files.train("run", {"--nproc-per-node", "2", "--step_scheduler.max_steps", "2"})).status,
            0);
  const std::string run = files.path("run"), exported = run + "/epoch_0_step_1/model/consolidated";
  const std::pair<const char*, const char*> places[] = {
      {"", "root"}, {"/LATEST", "latest"}, {"/epoch_0_step_1", "named"}, {"/epoch_0_step_1/model/", "model"}};
  for (const auto& [place, name] : places) {
    const Outcome outcome = convert(run + place, files.path(name));
    ASSERT_EQ(outcome.status, 0) << outcome.error;
    EXPECT_THAT(outcome.out,
                AllOf(StartsWith(files.path(name) + ": a Hugging Face directory of 21 tensors, "),
                      EndsWith(" KB in 1 file\n")));
    expect_same_files(exported, files.path(name));
    EXPECT_EQ(read_text(files.path(name) + "/heddle_tokenizer.json"), "{\"type\": \"bytes\"}\n");
  }
  fs::remove(run + "/LATEST");
  ASSERT_EQ(convert(run, files.path("newest")).status, 0);
  expect_same_files(exported, files.path("newest"));
}

TEST(Convert, ExportsLateWhatTheRunWouldHaveExportedThoughTheOriginalIsGone) {
  const TrainingFiles files;
  fs::copy(kGolden + "llama_odd", files.path("original"));
  files.write("original/tokenizer.json", "{\"version\": \"1.0\"}\n");
  files.write("original/tokenizer.model", std::string("\0\1\2", 3));
  files.write("original/chat_template.jinja", "{{ messages }}\n");
  files.write("original/modeling_mine.py", "import torch\n");
  files.write("original/generation_config.json", "{\"do_sample\": true}\n");
  ASSERT_EQ(heddle(train(files, "every", files.path("original"))).status, 0);
  ASSERT_EQ(heddle(train(files, "never", files.path("original"), {"--checkpoint.save_consolidated", "false"}))
                .status,
            0);
  fs::remove_all(files.path("original"));
  const std::string exported = files.path("every/LATEST/model/consolidated"), late = files.path("late");
  ASSERT_EQ(convert(files.path("never"), late).status, 0);
  expect_same_files(exported, late);
  EXPECT_EQ(model_files(late), model_files(kGolden + "llama_odd"));
  for (const char* note : {"tokenizer.json", "tokenizer.model", "chat_template.jinja", "modeling_mine.py",
                           "generation_config.json"}) {
    EXPECT_EQ(read_text(late + "/" + note), read_text(exported + "/" + note)) << note;
    EXPECT_FALSE(read_text(late + "/" + note).empty()) << note;
  }
}

TEST(Convert, ChangesDtypesAndSizesWhereAsked) {
  const TrainingFiles files;
  const std::string sharded = files.path("sharded");
  ASSERT_EQ(convert(kGolden + "llama", sharded).status, 0);
  ASSERT_EQ(convert(sharded, files.path("half"), {"--dtype", "bfloat16", "--max-shard-size", "10KB"}).status,
            0);
  EXPECT_THAT(read_text(files.path("half/config.json")), HasSubstr("\"dtype\": \"bfloat16\""));
  EXPECT_TRUE(fs::exists(files.path("half/model-00001-of-00005.safetensors")));
  EXPECT_THAT(read_text(files.path("half/model.safetensors.index.json")), HasSubstr("\"total_size\": 39232"));
  EXPECT_THAT(read_text(files.path("half/model-00001-of-00005.safetensors")), HasSubstr("\"BF16\""));
  // Rounded once: the same file comes back from the rounded one.
  ASSERT_EQ(convert(files.path("half"), files.path("again")).status, 0);
  ASSERT_EQ(convert(files.path("again"), files.path("back")).status, 0);
  expect_same_files(files.path("half"), files.path("back"));
}

TEST(Convert, RefusesWhatItWouldOverwriteAndWhatMakesNoSense) {
  const TrainingFiles files;
  fs::create_directories(files.path("full"));
  fs::create_directories(files.path("empty"));
  files.write("full/file", "mine");
  const Outcome full = convert(kGolden + "llama", files.path("full"));
  EXPECT_EQ(full.status, 2);
  EXPECT_EQ(full.error, "error[usage] " + files.path("full") +
                            ": is there and is not empty\n  hint: name a directory that is not there yet; "
                            "nothing is overwritten\n");
  EXPECT_EQ(read_text(files.path("full/file")), "mine");
  EXPECT_EQ(convert(kGolden + "llama", files.path("empty/")).status, 0);
  const Outcome dtype = convert(kGolden + "llama", files.path("new"), {"--dtype", "bfloat16"});
  EXPECT_EQ(dtype.status, 2);
  EXPECT_EQ(dtype.error, "error[usage] heddle convert: --dtype is for a Hugging Face directory, and " +
                             kGolden +
                             "llama is one: it becomes a sharded model, with the values that it has\n  hint: "
                             "leave it out; a model is loaded in any dtype (model.dtype)\n");
  const Outcome nothing = convert(files.path("nothing"), files.path("new"));
  EXPECT_EQ(nothing.status, 2);
  EXPECT_THAT(nothing.error, HasSubstr("error[input] " + files.path("nothing") + ": is not a directory"));
  EXPECT_EQ(convert(kGolden + "llama", files.path("new"), {"--dtype", "float8"}).status, 2);
  EXPECT_FALSE(fs::exists(files.path("new")));
}

TEST(Convert, LeavesNothingBehindWhereAFileIsDamaged) {
  const TrainingFiles files;
  const std::string sharded = files.path("sharded");
  ASSERT_EQ(convert(kGolden + "llama", sharded).status, 0);
  const std::string shard = sharded + "/shard-00001-model-00001-of-00001.safetensors";
  std::string bytes = read_text(shard);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  std::ofstream(shard, std::ios::binary) << bytes;
  const Outcome outcome = convert(sharded, files.path("out"), {"--nproc-per-node", "2"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.error, HasSubstr(shard + ": tensor \""));
  EXPECT_THAT(outcome.error, HasSubstr("the bytes are not those that were saved"));
  EXPECT_FALSE(fs::exists(files.path("out")));
  EXPECT_FALSE(fs::exists(files.path("out.incomplete")));
}

// The checkpoint of a run, and the same as a directory that was read by transformers' rules.
TEST(EitherKind, TrainsAndGeneratesTheSame) {
  const TrainingFiles files;
  ASSERT_EQ(heddle(files.train("run", {"--nproc-per-node", "2", "--step_scheduler.max_steps", "3"})).status,
            0);
  const std::string checkpoint = files.path("run/epoch_0_step_2");
  std::vector<double> first;
  std::string text;
  int number = 0;
  for (const std::string& model :
       {files.path("run"), checkpoint, checkpoint + "/model", checkpoint + "/model/consolidated"}) {
    const Outcome out = heddle({"generate", model, "--prompt", "warp ", "--max-tokens", "12", "--seed", "3"});
    ASSERT_EQ(out.status, 0) << out.error;
    const std::string run = "from" + std::to_string(number++);
    const Outcome trained = heddle(train(files, run, model));
    ASSERT_EQ(trained.status, 0) << trained.error;
    const std::vector<double> losses = column(files.path(run + "/training.jsonl"), "loss");
    if (text.empty()) text = out.out, first = losses;
    EXPECT_EQ(out.out, text) << model;
    EXPECT_EQ(losses, first) << model;
  }
  EXPECT_EQ(first.size(), 2u);
}

// What every topology exports has the loss that its run ended with, for one rank that reads it.
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
      {"zero3", "{strategy: megatron_fsdp, zero_dp_strategy: 3}"}};
  const Words even = {"--model.config.num_attention_heads", "2", "--model.config.num_key_value_heads", "2"};
  const Words held_out = {"--validation_dataset",
                          "{file_pattern: " + files.path("held_out.bin") + ", seq_len: 16}"};
  for (const auto& [name, distributed] : topologies) {
    const std::string again = std::string(name) + "_again";
    const Words words = plus({"--distributed", distributed, "--step_scheduler.max_steps", "2"}, held_out);
    const Outcome run = heddle(plus(files.train(name, {"--nproc-per-node", "2"}), plus(even, words)));
    ASSERT_EQ(run.status, 0) << run.error;
    const std::string exported = files.path(std::string(name) + "/LATEST/model/consolidated");
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

TEST(Exported, BySingleRankAndForTransformers4) {
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

TEST(Pretrained, WarnsOfTensorsWithoutAPlaceAndRefusesMissingOnes) {
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
  EXPECT_THAT(fewer.out, HasSubstr("warning: " + files.path("model") +
                                   ": the model has no place for 16 of the tensors "
                                   "(model.layers.2.input_layernorm.weight, "));
  EXPECT_THAT(fewer.out, HasSubstr(", ...); they are not loaded and not saved"));
  const Outcome more = layers("4");
  EXPECT_EQ(more.status, 2);
  EXPECT_THAT(more.error, HasSubstr("error[input] " + files.path("model") +
                                    ": the weights hold no tensor \"model.layers.3."));
}

}  // namespace
}  // namespace flow
