// Every recipe of examples/ holds on the data and the model that scripts/quickstart makes.
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "flow/stops/started.h"
#include "flow/training_files.h"

namespace flow {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

// What the quickstart leaves, of a small text.
class ExamplesOfEachKind : public ::testing::Test {
 protected:
  ExamplesOfEachKind() {
    fs::copy(HEDDLE_SOURCE_DIR "/examples", files_.path("examples"), fs::copy_options::recursive);
    fs::create_directories(files_.path("build/quickstart"));
    for (const char* name : {"train.bin", "validation.bin"})
      fs::copy(files_.path("train.bin"), files_.path("build/quickstart/" + std::string(name)));
    std::ofstream lengths(files_.path("build/quickstart/train.lengths"));
    std::ifstream text(files_.path("text.txt"));
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
  Words words = {"check"};
  for (const auto& entry : fs::recursive_directory_iterator(files_.path("examples")))
    if (entry.path().extension() == ".yaml" && entry.path().stem() != "finetune")
      words.push_back(entry.path().string());
  ASSERT_GE(words.size(), 23u);
  const Outcome outcome =
      heddle(plus(words, {"--world-size", "4", "--step_scheduler.global_batch_size", "8",
                          "--step_scheduler.local_batch_size", "2", "--step_scheduler.max_steps", "10"}));
  EXPECT_EQ(outcome.status, 0) << outcome.error;
}

}  // namespace
}  // namespace flow
