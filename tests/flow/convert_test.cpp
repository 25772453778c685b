// Conversion of models between the two kinds of directory, without training and without loss.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "flow/stops/started.h"
#include "model_files.h"
#include "tests/main/with_all.h"
#include "training_files.h"

namespace flow {
namespace {

HEDDLE_WITH_ALL("Convert.AcceptsEvery*:Convert.RemovesNoFile*");

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Outcome convert(const std::string& from, const std::string& to, const Words& more = {}) {
  return heddle(plus({"convert", from, to}, more));
}

// For every family: tests/plugins/llama/more_types_test.cpp.
TEST(Convert, GivesTransformersFilesBackByteForByte) {
  const TrainingFiles files;
  int ranks = 1;
  for (const char* model : {"llama_odd", "qwen3_moe", "nemotron_h"}) {
    const std::string sharded = files.path(std::string(model) + "_sharded"), back = files.path(model);
    const Words shared = {"--nproc-per-node", std::to_string(ranks)};
    ASSERT_EQ(convert(kGolden + model, sharded, shared).status, 0);
    const Outcome outcome = convert(sharded, back, shared);
    ASSERT_EQ(outcome.status, 0) << outcome.error;
    expect_same_files(kGolden + model, back);
    ++ranks;
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

TEST(Convert, AcceptsEveryCheckpointPathAndReportsWhatItWrote) {
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

TEST(Convert, ExportsTheSameAsTheRunWithoutTheOriginalModel) {
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

TEST(Convert, ChangesDtypesAndShardSizesOnRequest) {
  const TrainingFiles files;
  const std::string sharded = files.path("sharded");
  ASSERT_EQ(convert(kGolden + "llama", sharded).status, 0);
  ASSERT_EQ(convert(sharded, files.path("half"), {"--dtype", "bfloat16", "--max-shard-size", "10KB"}).status,
            0);
  EXPECT_THAT(read_text(files.path("half/config.json")), HasSubstr("\"dtype\": \"bfloat16\""));
  EXPECT_TRUE(fs::exists(files.path("half/model-00001-of-00005.safetensors")));
  EXPECT_THAT(read_text(files.path("half/model.safetensors.index.json")), HasSubstr("\"total_size\": 39232"));
  EXPECT_THAT(read_text(files.path("half/model-00001-of-00005.safetensors")), HasSubstr("\"BF16\""));
  // Rounded once: converting the rounded file returns the same file.
  ASSERT_EQ(convert(files.path("half"), files.path("again")).status, 0);
  ASSERT_EQ(convert(files.path("again"), files.path("back")).status, 0);
  expect_same_files(files.path("half"), files.path("back"));
}

// Another conversion holds a lock on the incomplete directory, as this test does.
TEST(Convert, RefusesADestinationThatAnotherConversionIsWriting) {
  const TrainingFiles files;
  const std::string stage = files.path("new.incomplete");
  fs::create_directories(stage);
  files.write("new.incomplete/half", "written");
  files.write("new.incomplete/.heddle_convert", "");
  const int held = ::open(stage.c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(::flock(held, LOCK_EX | LOCK_NB), 0);
  const Outcome second = convert(kGolden + "llama", files.path("new"), {"--nproc-per-node", "2"});
  EXPECT_EQ(second.status, 2);
  EXPECT_THAT(second.error, HasSubstr("error[usage] " + files.path("new") +
                                      ": is being written by another heddle convert\n"
                                      "  hint: wait for that process, or choose another directory\n"));
  EXPECT_EQ(read_text(stage + "/half"), "written");
  ::close(held);  // the other conversion was killed
  EXPECT_EQ(convert(kGolden + "llama", files.path("new")).status, 0);
  EXPECT_FALSE(fs::exists(files.path("new/half")));
  EXPECT_FALSE(fs::exists(stage));
}

TEST(Convert, RefusesToOverwriteAndRefusesContradictoryOptions) {
  const TrainingFiles files;
  fs::create_directories(files.path("full"));
  fs::create_directories(files.path("empty"));
  files.write("full/file", "mine");
  const Outcome full = convert(kGolden + "llama", files.path("full"));
  EXPECT_EQ(full.status, 2);
  EXPECT_EQ(full.error, "error[usage] " + files.path("full") +
                            ": exists and is not empty\n  hint: choose a directory that does not exist; "
                            "nothing is overwritten\n");
  EXPECT_EQ(read_text(files.path("full/file")), "mine");
  fs::create_directories(files.path("empty.incomplete"));  // left by an interrupted conversion
  files.write("empty.incomplete/junk", "");
  files.write("empty.incomplete/.heddle_convert.tmp.1", "");
  EXPECT_EQ(convert(kGolden + "llama", files.path("empty/")).status, 0);
  EXPECT_TRUE(fs::exists(files.path("empty/manifest.json")));
  EXPECT_FALSE(fs::exists(files.path("empty/junk")));
  EXPECT_FALSE(fs::exists(files.path("empty/.heddle_convert")));
  EXPECT_FALSE(fs::exists(files.path("empty.incomplete")));
  const Outcome dtype = convert(kGolden + "llama", files.path("new"), {"--dtype", "bfloat16"});
  EXPECT_EQ(dtype.status, 2);
  EXPECT_EQ(
      dtype.error,
      "error[usage] heddle convert: --dtype applies to writing a Hugging Face directory, but " + kGolden +
          "llama is one and becomes a sharded model\n  hint: remove it; runs and heddle generate read a "
          "model in any dtype. For another dtype on disk, convert the sharded model back with --dtype\n");
  const Outcome sized = convert(kGolden + "llama", files.path("new"), {"--max-shard-size", "1MB"});
  EXPECT_EQ(sized.status, 2);
  EXPECT_THAT(
      sized.error,
      HasSubstr("becomes a sharded model\n  hint: remove it; a sharded model has one file per rank\n"));
  const Outcome nothing = convert(files.path("nothing"), files.path("new"));
  EXPECT_EQ(nothing.status, 2);
  EXPECT_THAT(nothing.error, HasSubstr("error[input] " + files.path("nothing") + ": does not exist"));
  EXPECT_EQ(convert(kGolden + "llama", files.path("new"), {"--dtype", "float8"}).status, 2);
  for (const std::string size : {"much", "0", "-5", "5XB"}) {
    const Outcome outcome = convert(kGolden + "llama", files.path("new"), {"--max-shard-size=" + size});
    EXPECT_EQ(outcome.status, 2);
    EXPECT_EQ(outcome.error,
              "error[usage] heddle convert: --max-shard-size: expected a size such as 5GB or "
              "800MiB, got '" +
                  size + "'\n  hint: run: heddle convert --help\n");
  }
  EXPECT_FALSE(fs::exists(files.path("new")));
}

TEST(Convert, RemovesNoFileThatItDidNotWrite) {
  const TrainingFiles files;
  fs::create_directories(files.path("new.incomplete"));
  fs::create_directories(files.path("disk"));
  files.write("new.incomplete/mine", "mine");
  files.write("file", "");
  fs::create_directory_symlink("disk", files.path("link"));
  fs::create_directory_symlink("gone", files.path("dangling"));
  fs::create_directory_symlink("disk", files.path("other.incomplete"));
  const std::string overwritten = "; nothing is overwritten\n";
  const std::string foreign =
      ".incomplete: exists and was not left by heddle convert\n  hint: move it "
      "away or choose another directory" +
      overwritten;
  const std::string link = ": is a link\n  hint: give the target of the link\n";
  const std::pair<std::string, std::string> refused[] = {
      {"new", foreign},
      {"other", foreign},
      {"file",
       ": exists and is not a directory\n  hint: choose a directory that does not exist" + overwritten},
      {"link", link},
      {"link/", link},
      {"dangling", link}};
  for (const auto& [name, words] : refused) {
    const Outcome outcome = convert(kGolden + "llama", files.path(name));
    const std::string place = files.path(name.substr(0, name.find('/')));
    EXPECT_EQ(outcome.status, 2);
    EXPECT_EQ(outcome.error, "error[usage] " + place + words);
  }
  for (const std::string name : {"", ".", "..", "./", "a/.."}) {
    const Outcome outcome = convert(kGolden + "llama", name);
    EXPECT_EQ(outcome.status, 2);
    EXPECT_THAT(outcome.error,
                AllOf(StartsWith("error[usage] heddle convert: expected the name of a new directory, got \""),
                      EndsWith("\"\n  hint: choose a directory that does not exist\n")));
  }
  EXPECT_EQ(read_text(files.path("new.incomplete/mine")), "mine");
  EXPECT_TRUE(fs::is_regular_file(files.path("file")));
  EXPECT_TRUE(fs::is_empty(files.path("disk")));
  for (const char* name : {"link", "dangling", "other.incomplete"})
    EXPECT_TRUE(fs::is_symlink(files.path(name))) << name;
}

// An existing empty directory remains empty.
TEST(Convert, LeavesNoFileWhenTheSourceIsDamaged) {
  const TrainingFiles files;
  const std::string sharded = files.path("sharded");
  ASSERT_EQ(convert(kGolden + "llama", sharded).status, 0);
  const std::string shard = sharded + "/shard-00001-model-00001-of-00001.safetensors";
  std::string bytes = read_text(shard);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  std::ofstream(shard, std::ios::binary) << bytes;
  fs::create_directories(files.path("empty"));
  EXPECT_EQ(convert(sharded, files.path("empty")).status, 2);
  EXPECT_TRUE(fs::is_empty(files.path("empty")));
  const Outcome outcome = convert(sharded, files.path("out"), {"--nproc-per-node", "2"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.error, HasSubstr(shard + ": tensor \""));
  EXPECT_THAT(outcome.error, HasSubstr("the bytes are not those that were saved"));
  EXPECT_FALSE(fs::exists(files.path("out")));
  EXPECT_FALSE(fs::exists(files.path("out.incomplete")));
}

// The checkpoint of a run, and the same model read from a Hugging Face directory.
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

}  // namespace
}  // namespace flow
