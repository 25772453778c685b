// Every recipe of examples/ works with the data and the model that scripts/quickstart creates.
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "flow/stops/started.h"
#include "flow/training_files.h"
#include "tests/main/with_all.h"

namespace flow {
namespace {

HEDDLE_WITH_ALL("ExamplesOfEachKind.*");

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

// Outputs of the quickstart, with a small text.
class ExamplesOfEachKind : public ::testing::Test {
 protected:
  ExamplesOfEachKind() {
    fs::copy(HEDDLE_SOURCE_DIR "/examples", files_.path("examples"), fs::copy_options::recursive);
    fs::create_directories(files_.path("build/quickstart"));
    std::string book;
    while (book.size() < 2'100'000)
      book += read_text(files_.path("text.txt"));  // 1,000 steps of the quickstart
    files_.write("book.txt", book);
    const std::string tokens = files_.path("build/quickstart/train.bin");
    EXPECT_EQ(heddle({"data", files_.path("book.txt"), "--out", tokens}).status, 0);
    fs::copy(files_.path("train.bin"), files_.path("build/quickstart/validation.bin"));
    std::ofstream lengths(files_.path("build/quickstart/train.lengths"));
    std::istringstream text(book);
    for (std::string line; std::getline(text, line);) lengths << line.size() + (text.eof() ? 0 : 1) << "\n";
    const Outcome made = shell("python3 " HEDDLE_SOURCE_DIR "/scripts/example_texts " +
                               files_.path("text.txt") + " " + files_.path("build/quickstart/texts"));
    EXPECT_EQ(made.status, 0) << made.error;
  }

  std::string example(const std::string& name) const { return files_.path("examples/" + name + ".yaml"); }

  TrainingFiles files_;
};

TEST_F(ExamplesOfEachKind, TrainOnTexts) {
  const Words packages = {"PYTHONPATH=" HEDDLE_PYTHON_PACKAGES, "HEDDLE_PYTHON="};
  for (const std::string name : {"squad", "hellaswag", "chat", "columns", "xlam", "agent"}) {
    const Outcome outcome = heddle({"train", example("texts/" + name), "--step_scheduler.max_steps", "1",
                                    "--step_scheduler.global_batch_size", "4", "--lr_scheduler", "none",
                                    "--checkpoint.enabled", "false", "--distributed.tp_size", "1"},
                                   packages);
    EXPECT_EQ(outcome.status, 0) << name << outcome.error;
    EXPECT_THAT(outcome.out, HasSubstr("step 1/1  loss 5.")) << name;  // ln 261 is 5.6
    EXPECT_THAT(outcome.error, Not(HasSubstr("warning"))) << name;
  }
}

TEST_F(ExamplesOfEachKind, AreCheckedOnTheFilesOfTheQuickstart) {
  const Outcome run = heddle({"train", example("quickstart"), "--step_scheduler.max_steps", "1",
                              "--step_scheduler.ckpt_every_steps", "1", "--lr_scheduler", "none"});
  ASSERT_EQ(run.status, 0) << run.error;
  // The comment of each recipe contains its number of ranks.
  std::map<std::string, Words> checks;
  for (const auto& entry : fs::recursive_directory_iterator(files_.path("examples"))) {
    if (entry.path().extension() != ".yaml" || entry.path().stem() == "finetune") continue;
    const std::string text = read_text(entry.path()), word = "--nproc-per-node ";
    const size_t at = text.find(word);
    checks[at == text.npos ? "1" : text.substr(at + word.size(), 1)].push_back(entry.path().string());
  }
  EXPECT_THAT(checks, ::testing::SizeIs(3));
  EXPECT_GE(checks["2"].size(), 15u);
  for (const auto& [ranks, files] : checks) {
    const Outcome outcome = heddle(plus(plus({"check"}, files), {"--world-size", ranks}));
    EXPECT_EQ(outcome.status, 0) << outcome.error;
  }
}

TEST_F(ExamplesOfEachKind, RunWithTheFirstPage) {
  const std::string page = read_text(HEDDLE_SOURCE_DIR "/README.md");
  const size_t from = page.find("```yaml\n") + 8;
  files_.write("first.yaml", page.substr(from, page.find("```", from) - from));
  const Words words = {
      "check", files_.path("first.yaml"), "--dataset.file_pattern", files_.path("train.bin"), "--world-size",
      "2"};
  const Outcome outcome = heddle(words);
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_THAT(outcome.out, HasSubstr("parameters: 381.60 K\n"));
  EXPECT_THAT(page, HasSubstr("model   llama, 381.60 K parameters, float32, random weights\n"));
  // The figures of the first page equal those of the results.
  const std::string results = read_text(HEDDLE_SOURCE_DIR "/bench/RESULTS.md");
  const size_t figures = page.find("## Benchmarks"), end = page.find("## What works");
  std::istringstream cells(page.substr(figures, end - figures));
  int found = 0;
  for (std::string cell; std::getline(cells, cell, '|');) {
    if (!cell.ends_with(" ms ") && !cell.ends_with(" us ") && !cell.ends_with(" s ")) continue;
    EXPECT_THAT(results, HasSubstr("|" + cell.substr(0, cell.rfind(' ', cell.size() - 2)) + " |"));
    ++found;
  }
  EXPECT_EQ(found, 10);
}

}  // namespace
}  // namespace flow
