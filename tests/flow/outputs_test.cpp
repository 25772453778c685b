// A user's file at each output path of a command is refused with status 2 before any work, and not changed.
// Outputs of a run beside its checkpoints: tests/run/outputs/outputs_test.cpp.
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>

#include "flow/stops/started.h"
#include "model_files.h"
#include "tests/main/with_all.h"

namespace flow {
namespace {

HEDDLE_WITH_ALL("Outputs.Refuse*");

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr const char* kMine = "mine\n";
constexpr const char* kWords =
    R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":null,
"pre_tokenizer":{"type":"WhitespaceSplit"},"post_processor":null,"decoder":null,
"model":{"type":"WordLevel","vocab":{"<unk>":0,"</s>":1,"warp":2,"weft":3},"unk_token":"<unk>"}})";

class Outputs : public ::testing::Test {
 protected:
  Outputs() {
    fs::create_directory(at("words"));
    files_.write("words/tokenizer.json", kWords);
    files_.write("words/tokenizer_config.json", R"({"eos_token": "</s>"})");
    files_.write("table.csv", "0F0,0B0\n");
  }
  std::string at(const std::string& name) const { return files_.path(name); }
  static Outcome run(const Words& words) {
    return heddle(words, {"PYTHONPATH=" HEDDLE_PYTHON_PACKAGES, "HEDDLE_PYTHON="});
  }
  Words schedule(const std::string& trace) const {
    return {"schedule", "1f1b", "--ranks", "2", "--microbatches", "2", "--trace", at(trace)};
  }
  Words data(const std::string& out, const Words& more = {}) const {
    return plus({"data", at("text.txt"), "--out", at(out)}, more);
  }

  const TrainingFiles files_;
};

struct OutputRow {
  Words words;
  std::string place;  // of the user's file
};

TEST_F(Outputs, RefuseToReplaceFilesThatHeddleDidNotWrite) {
  const Words tokenizer = {"--tokenizer", at("words"), "--force"};
  const std::vector<OutputRow> rows = {
      {files_.train("run", {"--metrics", at("mine")}), "mine"},
      {files_.train("run", {"--trace", at("mine")}), "mine"},
      {files_.train("mine"), "mine"},
      {files_.train("run", {"--checkpoint.staging_dir", at("mine")}), "mine"},
      {{"check", at("run.yaml"), "--checkpoint.checkpoint_dir", at("mine")}, "mine"},
      {{"check", at("run.yaml"), "--checkpoint.checkpoint_dir", at("run"), "--checkpoint.staging_dir",
        at("mine")},
       "mine"},
      {schedule("mine"), "mine"},
      {{"schedule", "--csv", at("table.csv"), "--trace", at("mine")}, "mine"},
      {data("mine"), "mine"},
      {data("x.bin"), "x.bin.part"},
      {data("x.bin", {"--force"}), "x.bin.part"},
      {data("x.bin", tokenizer), "x.bin.part"},
      {data("x.bin", tokenizer), "x.bin.tokens.json"},
      {{"convert", kGolden + "llama", at("mine")}, "mine"},
      {{"convert", kGolden + "llama", at("model")}, "model.incomplete"},
      {{"plugins", "new", at("mine")}, "mine"},
      {{"prepare", at("run.yaml"), "--out", at("mine")}, "mine"},
  };
  for (const OutputRow& row : rows) {
    SCOPED_TRACE(::testing::PrintToString(row.words) + " " + row.place);
    files_.write(row.place, kMine);
    const Outcome outcome = run(row.words);
    EXPECT_EQ(outcome.status, 2) << outcome.error;
    EXPECT_THAT(outcome.error, HasSubstr(at(row.place)));
    EXPECT_THAT(outcome.error, HasSubstr("\n  hint: "));
    EXPECT_THAT(outcome.out, ::testing::Not(HasSubstr("step 1")));
    EXPECT_EQ(read_text(at(row.place)), kMine);
    fs::remove(at(row.place));
    EXPECT_FALSE(fs::exists(at("x.bin")) || fs::exists(at("run")) || fs::exists(at("model")));
  }
}

TEST_F(Outputs, ReplaceFilesThatHeddleWrote) {
  const Words tokenizer = {"--tokenizer", at("words"), "--force"};
  for (const Words& words : {schedule("trace.json"), data("x.bin", tokenizer), data("y.bin", {"--force"})})
    for (int time = 0; time < 2; ++time) {
      const Outcome outcome = run(words);
      EXPECT_EQ(outcome.status, 0) << ::testing::PrintToString(words) << outcome.error;
    }
  EXPECT_TRUE(fs::exists(at("x.bin.tokens.json")));
  // Bytes have no note, so a user's file of that name is kept.
  files_.write("y.bin.tokens.json", kMine);
  EXPECT_EQ(run(data("y.bin", {"--force"})).status, 0);
  EXPECT_EQ(read_text(at("y.bin.tokens.json")), kMine);
}

// The sink that `heddle plugins new --kind metrics` writes, under its own name.
TEST_F(Outputs, RefuseToReplaceFilesForTheSinkOfAPlugin) {
  fs::create_directory(at("plugins"));
  fs::copy_file(HEDDLE_BINARY_DIR "/tests/examples/libheddle_template_metrics.so",
                at("plugins/libheddle_hello.so"));
  const auto train = [&](const std::string& table) {
    return heddle(files_.train("out", {"--hello.file", at(table), "--step_scheduler.max_steps", "2",
                                       "--checkpoint.enabled", "false", "--nproc-per-node", "1"}),
                  {"HEDDLE_PLUGIN_PATH=" + at("plugins")});
  };
  for (const std::string name : {"run.yaml", "text.txt", "train.bin", "table.csv"}) {
    const std::string before = read_text(at(name));
    const Outcome outcome = train(name);
    EXPECT_EQ(outcome.status, 2) << name << outcome.error;
    EXPECT_THAT(outcome.error,
                HasSubstr(at(name) + " exists and contains no table of hello\n  hint: move it away, or "
                                     "choose another file\n"));
    EXPECT_EQ(read_text(at(name)), before) << name;
  }
  const Outcome metrics = train("out/training.jsonl");
  EXPECT_EQ(metrics.status, 2) << metrics.error;
  EXPECT_THAT(metrics.error,
              HasSubstr("out/training.jsonl is used for two outputs: the table of hello, and the "
                        "metrics of checkpoint.checkpoint_dir"));
  for (const size_t lines : {3u, 5u}) {
    const Outcome outcome = train("own.csv");
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    const std::string table = read_text(at("own.csv"));
    EXPECT_EQ(static_cast<size_t>(std::count(table.begin(), table.end(), '\n')), lines) << table;
  }
}

}  // namespace
}  // namespace flow
