// What a person meets who misspells, goes back, or mixes builds: the program's words, and nothing lost.
#include <gmock/gmock.h>

#include <filesystem>

#include "started.h"
#include "training_files.h"

namespace flow {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

const Words kEvery2 = {"--step_scheduler.ckpt_every_steps", "2"};

Words up_to(const std::string& steps) {
  return plus(kEvery2, {"--step_scheduler.max_steps", steps});
}

TEST(Overrides, TakeEverySectionWhole) {
  const TrainingFiles files;
  const Words check = {"check",
                       files.path("run.yaml"),
                       "--freeze_config",
                       "{patterns: ['q_proj']}",
                       "--validation_dataset_small",
                       "{file_pattern: a.bin, seq_len: 4}"};
  EXPECT_EQ(heddle(check).status, 0) << heddle(check).error;
  const Outcome wrong =
      heddle({"check", files.path("run.yaml"), "--validation_dataset_small", "{sq_len: 4}"});
  EXPECT_THAT(wrong.error, HasSubstr("--validation_dataset_small validation_dataset_small"));
}

TEST(AShortTry, NeedsAShorterWarmup) {
  const TrainingFiles files;
  const Outcome outcome =
      heddle(files.train("run", plus(up_to("2"), {"--lr_scheduler.lr_warmup_steps", "20"})));
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.error,
              HasSubstr("lr_warmup_steps (20) must be below lr_decay_steps (2), which is the length "
                        "of the run where it is not given"));
}

TEST(GoingBack, IsRefusedWhereTheNextCheckpointsAreThereBeforeAnyStep) {
  const TrainingFiles files;
  ASSERT_EQ(heddle(files.train("run", up_to("6"))).status, 0);
  fs::remove(files.path("run/training.jsonl"));
  const Outcome back =
      heddle(files.train("run", plus(up_to("8"), {"--checkpoint.restore_from", "epoch_0_step_1"})));
  EXPECT_EQ(back.status, 2);
  EXPECT_EQ(back.error,
            "error[config] checkpoint.checkpoint_dir: " + files.path("run/epoch_0_step_3") +
                " is in the way: the run begins with step 3 and would save there after step 4\n"
                "  hint: remove it and those after it, or point checkpoint.checkpoint_dir at a fresh "
                "directory and checkpoint.restore_from at " +
                files.path("run/epoch_0_step_1") + "\n");
  EXPECT_FALSE(fs::exists(files.path("run/training.jsonl")));
  const Outcome aside = heddle(files.train(
      "aside", plus(up_to("8"), {"--checkpoint.restore_from", files.path("run/epoch_0_step_1")})));
  EXPECT_EQ(aside.status, 0) << aside.error;
}

TEST(AnotherModel, IsRefusedWhereItWouldSaveOverTheOldOnesCheckpoints) {
  const TrainingFiles files;
  ASSERT_EQ(heddle(files.train("run", up_to("4"))).status, 0);
  const Outcome wider =
      heddle(files.train("run", plus(up_to("4"), {"--model.config.intermediate_size", "48"})));
  EXPECT_EQ(wider.status, 2);
  EXPECT_THAT(wider.error,
              HasSubstr(files.path("run/epoch_0_step_1") +
                        " is in the way: the run begins with step 1 and would save there after step "
                        "2; it is of another model: intermediate_size is 40 there and 48 here\n"
                        "  hint: point checkpoint.checkpoint_dir at a fresh directory\n"));
}

TEST(RestoreFrom, SaysWhatIsNearToACheckpoint) {
  const TrainingFiles files;
  ASSERT_EQ(heddle(files.train("run", up_to("4"))).status, 0);
  const auto refusal = [&](const std::string& word) {
    return heddle(files.train("other", plus(up_to("4"), {"--checkpoint.restore_from", word}))).error;
  };
  const std::string needs =
      " is no complete checkpoint: it needs step_scheduler.json, model/manifest.json and "
      "optim/manifest.json\n  hint: ";
  EXPECT_EQ(refusal(files.path("run")), "error[input] checkpoint.restore_from: " + files.path("run") + needs +
                                            "it is a directory of checkpoints; the newest is " +
                                            files.path("run/epoch_0_step_3") + "\n");
  for (const char* part : {"run/epoch_0_step_3/model", "run/epoch_0_step_3/optim/"})
    EXPECT_EQ(refusal(files.path(part)), "error[input] checkpoint.restore_from: " + files.path(part) + needs +
                                             "it is a part of the checkpoint " +
                                             files.path("run/epoch_0_step_3") + "\n");
  EXPECT_THAT(refusal(files.path("gone")),
              HasSubstr("error[input] checkpoint.restore_from: " + files.path("gone") + " is not there\n"));
}

TEST(CopiesToSaveFrom, AreCountedInTheMemoryOfARun) {
  const TrainingFiles files;
  const auto memory = [&](const std::string& run, const Words& words) {
    const std::string out = heddle(files.train(run, plus(up_to("2"), words))).out;
    const size_t at = out.find("  memory ");
    return out.substr(at, out.find('\n', at) - at);
  };
  EXPECT_THAT(memory("waits", {}), Not(HasSubstr("copies")));
  const std::string async = memory("goes_on", {"--checkpoint.is_async", "true"});
  const auto bytes_behind = [&](const std::string& word) {
    return std::stod(async.substr(async.find(word) + word.size()));
  };
  // One rank writes its parameters, both moments of each, and a step for each tensor.
  EXPECT_NEAR(bytes_behind("copies to save from "), bytes_behind("parameters ") + bytes_behind("optimizer "),
              0.1 * bytes_behind("optimizer "))
      << async;
}

TEST(Builds, OfTheProgramAndItsLibraryThatDifferAreRefused) {
  const TrainingFiles files;
  const fs::path build = HEDDLE_BINARY_DIR;
  const std::string library = files.path("libheddle_trainer.so");
  fs::copy(build / "heddle", files.path("heddle"));
  fs::create_symlink(build / "libheddle_base.so", files.path("libheddle_base.so"));
  fs::copy(build / "tests/bad_plugins/libheddle_no_papers.so", library);  // any library without the stamp
  const Outcome mixed = shell("'" + files.path("heddle") + "' plugins list");
  EXPECT_EQ(mixed.status, 1);
  EXPECT_THAT(mixed.error,
              HasSubstr("error[internal] " + library +
                        ": the trainer's library is of another build than the program: its commands "
                        "are not said, and the program's "));
  EXPECT_THAT(mixed.error,
              HasSubstr("hint: build both together (the target heddle_program), or install heddle again"));
}

}  // namespace
}  // namespace flow
