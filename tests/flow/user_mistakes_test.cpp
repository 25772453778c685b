// Mistakes of users (misspellings, going back, mixed builds): messages, and no loss of data.
#include <gmock/gmock.h>

#include <filesystem>

#include "flow/stops/started.h"
#include "tests/main/with_all.h"
#include "training_files.h"

namespace flow {
namespace {

HEDDLE_WITH_ALL("Memory.*");

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

const Words kEvery2 = {"--step_scheduler.ckpt_every_steps", "2"};

Words up_to(const std::string& steps) {
  return plus(kEvery2, {"--step_scheduler.max_steps", steps});
}

TEST(Overrides, SetSectionsOfPlugins) {
  const TrainingFiles files;
  const std::string board = files.path("board");
  const Outcome set = heddle(files.train("run", plus(up_to("1"), {"--tensorboard", "{dir: " + board + "}"})));
  EXPECT_EQ(set.status, 0) << set.error;
  EXPECT_FALSE(fs::is_empty(board));
}

TEST(GoingBack, IsRefusedBeforeAnyStepWhenTheNextCheckpointsExist) {
  const TrainingFiles files;
  ASSERT_EQ(heddle(files.train("run", up_to("6"))).status, 0);
  fs::remove(files.path("run/training.jsonl"));
  const Outcome back =
      heddle(files.train("run", plus(up_to("8"), {"--checkpoint.restore_from", "epoch_0_step_1"})));
  EXPECT_EQ(back.status, 2);
  EXPECT_EQ(back.error,
            "error[config] checkpoint.checkpoint_dir: " + files.path("run/epoch_0_step_3") +
                " already exists and would be overwritten at step 4, because the run starts at step 3\n"
                "  hint: remove this checkpoint and all later ones, or set checkpoint.checkpoint_dir to a "
                "new directory and checkpoint.restore_from to " +
                files.path("run/epoch_0_step_1") + "\n");
  EXPECT_FALSE(fs::exists(files.path("run/training.jsonl")));
  const Outcome aside = heddle(files.train(
      "aside", plus(up_to("8"), {"--checkpoint.restore_from", files.path("run/epoch_0_step_1")})));
  EXPECT_EQ(aside.status, 0) << aside.error;
}

TEST(AnotherModel, IsRefusedWhenItWouldOverwriteTheFirstModelsCheckpoints) {
  const TrainingFiles files;
  ASSERT_EQ(heddle(files.train("run", up_to("4"))).status, 0);
  const Outcome wider =
      heddle(files.train("run", plus(up_to("4"), {"--model.config.intermediate_size", "48"})));
  EXPECT_EQ(wider.status, 2);
  EXPECT_THAT(wider.error,
              HasSubstr(files.path("run/epoch_0_step_1") +
                        " already exists and would be overwritten at step 2, because the run starts at step "
                        "1; it holds another model: intermediate_size was 40, now 48\n"
                        "  hint: set checkpoint.checkpoint_dir to a new directory\n"));
}

// The existing checkpoint belongs to this model and is intact, so no message suggests to remove it.
TEST(AnotherModel, HintsAtTheRunsOwnCheckpointsWhenInLatest) {
  const TrainingFiles files;
  const Words wider = {"--model.config.intermediate_size", "48"};
  ASSERT_EQ(heddle(files.train("run", {"--step_scheduler.max_steps", "4"})).status, 0);
  ASSERT_EQ(heddle(files.train("run", plus({"--step_scheduler.max_steps", "2"}, wider))).status, 0);
  const Outcome back = heddle(files.train("run", {"--step_scheduler.max_steps", "4"}));
  EXPECT_EQ(back.status, 2);
  EXPECT_EQ(back.error,
            "error[config] checkpoint.checkpoint_dir: " + files.path("run/epoch_0_step_3") +
                " already exists and would be overwritten at step 4, because the run starts at step 1; "
                "LATEST names "
                "epoch_0_step_1, a checkpoint of another model: intermediate_size was 48, now 40\n"
                "  hint: --checkpoint.restore_from epoch_0_step_3 resumes from the newest checkpoint of this "
                "model. Or set checkpoint.checkpoint_dir to a new directory\n");
  const Outcome further = heddle(files.train("run", {"--step_scheduler.max_steps", "3"}));
  EXPECT_THAT(further.out + further.error,
              HasSubstr("intermediate_size was 48, now 40. Skipping restore. --checkpoint.restore_from "
                        "epoch_0_step_3 resumes from the newest checkpoint of this model.\n"));
}

TEST(LearningRate, IsReportedWhenItChangesOnResume) {
  const TrainingFiles files;
  const auto run = [&](const std::string& name, const std::string& steps, const Words& more) {
    const Outcome outcome = heddle(files.train(name, plus({"--step_scheduler.max_steps", steps}, more)));
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    return outcome.out + outcome.error;
  };
  const Words cosine = {"--lr_scheduler", "{lr_decay_style: cosine, lr_warmup_steps: 1}"};
  EXPECT_THAT(run("cosine", "4", cosine), Not(HasSubstr("learning rate")));
  EXPECT_THAT(
      run("cosine", "8", cosine),
      HasSubstr("warning: the learning rate of step 5 changed from 3e-05 (run that "
                "saved epoch_0_step_3) to 0.00184544 (this run): that run had 4 steps, this one has 8\n"));
  run("constant", "2", {});
  EXPECT_THAT(run("constant", "3", {"--optimizer.lr", "0.001"}),
              HasSubstr("warning: the learning rate of step 3 changed from 0.003 (run that saved "
                        "epoch_0_step_1) to 0.001 (this run)\n"));
  EXPECT_THAT(run("constant", "4", {"--optimizer.lr", "0.001"}), Not(HasSubstr("learning rate")));
}

TEST(ADiskWithLittleSpace, IsReportedBeforeTheFirstStep) {
  const TrainingFiles files;
  const auto begun = [&](const std::string& name, const Words& more) {
    Started run(
        files.train(name, plus({"--step_scheduler.max_steps", "1000000000", "--step_scheduler.num_epochs",
                                "none", "--step_scheduler.ckpt_every_steps", "1"},
                               more)));
    EXPECT_TRUE(eventually([&] { return fs::exists(files.path(name + "/LATEST")); }));
    return run.errors();
  };
  const std::string all = begun("all", {});
  EXPECT_THAT(all, HasSubstr("warning: the checkpoints of this run take "));
  EXPECT_THAT(all, HasSubstr(": set checkpoint.max_recent_checkpoints, or save less often with "
                             "step_scheduler.ckpt_every_steps\n"));
  EXPECT_THAT(begun("few", {"--checkpoint.max_recent_checkpoints", "2"}), Not(HasSubstr("take ")));
}

TEST(RestoreFrom, NamesACheckpointNearAWrongPath) {
  const TrainingFiles files;
  ASSERT_EQ(heddle(files.train("run", up_to("4"))).status, 0);
  const auto refusal = [&](const std::string& word) {
    return heddle(files.train("other", plus(up_to("4"), {"--checkpoint.restore_from", word}))).error;
  };
  const std::string needs =
      " is not a complete checkpoint: it needs step_scheduler.json, model/manifest.json and "
      "optim/manifest.json\n  hint: ";
  EXPECT_EQ(refusal(files.path("run")), "error[input] checkpoint.restore_from: " + files.path("run") + needs +
                                            "the directory contains checkpoints; name the newest: " +
                                            files.path("run/epoch_0_step_3") + "\n");
  for (const char* part : {"run/epoch_0_step_3/model", "run/epoch_0_step_3/optim/"})
    EXPECT_EQ(refusal(files.path(part)),
              "error[input] checkpoint.restore_from: " + files.path(part) + needs +
                  "name the checkpoint that contains it: " + files.path("run/epoch_0_step_3") + "\n");
  EXPECT_THAT(refusal(files.path("gone")),
              HasSubstr("error[input] checkpoint.restore_from: " + files.path("gone") + " does not exist\n"));
}

TEST(CopiesToSaveFrom, AreCountedInTheMemoryOfARun) {
  const TrainingFiles files;
  const auto memory = [&](const std::string& run, const Words& words) {
    const std::string out = heddle(files.train(run, plus(up_to("2"), words))).out;
    return out.substr(out.find("  memory "));
  };
  EXPECT_THAT(memory("waits", {}), Not(HasSubstr("copies")));
  const std::string async = memory("goes_on", {"--checkpoint.is_async", "true"});
  const auto bytes_behind = [&](const std::string& word) {
    return std::stod(async.substr(async.find(word) + word.size()));
  };
  // One rank writes its parameters, both moments of each, and one step per tensor.
  EXPECT_NEAR(bytes_behind("copies for saving: "), bytes_behind("parameters ") + bytes_behind("optimizer "),
              0.1 * bytes_behind("optimizer "))
      << async;
}

TEST(Memory, ReportsNumbersAndHintsWhenItRunsOut) {
  const Words wide = {
      "--model.config.hidden_size",         "134217728", "--model.config.intermediate_size",   "268435456",
      "--model.config.num_attention_heads", "1",         "--model.config.num_key_value_heads", "1",
      "--model.config.vocab_size",          "268435456"};
  for (const char* ranks : {"1", "2"}) {
    const TrainingFiles files;
    const Outcome outcome =
        heddle(plus(files.train("run", {"--nproc-per-node", ranks, "--model.check_memory", "false"}), wide));
    EXPECT_EQ(outcome.status, 1);
    EXPECT_THAT(outcome.error,
                ::testing::ContainsRegex("error\\[internal\\] memory: cannot allocate [0-9.]+ [PE]iB for a "
                                         "tensor: this process holds [0-9.]+ [MG]iB; the machine has "));
    EXPECT_THAT(outcome.error,
                HasSubstr("\n  hint: lower step_scheduler.local_batch_size or dataset.seq_len, set "
                          "distributed.activation_checkpointing: full, or split the model over "
                          "more ranks\n"));
    for (const char* other : {"frame #", "enforce fail", "error[plugin_failed]"})
      EXPECT_THAT(outcome.error, Not(HasSubstr(other)));
  }
}

// A Python launcher uses more memory than a small run, and a process inherits this figure until it executes
// heddle.
TEST(Memory, ExcludesTheLauncher) {
  const TrainingFiles files;
  const std::string launchers(size_t{1} << 30, 'x');
  ASSERT_EQ(heddle(files.train("one")).status, 0);
  ASSERT_EQ(heddle(files.train("two", {"--nproc-per-node", "2"})).status, 0);
  for (const char* run : {"one/training.jsonl", "two/training.jsonl"}) {
    const double mem = column(files.path(run), "mem").back();
    EXPECT_GT(mem, 0.005) << run;
    EXPECT_LT(mem, 0.5) << run;
  }
  EXPECT_EQ(launchers.back(), 'x');
}

TEST(StandardOutput, IsAFailureWhenItCannotBeWritten) {
  for (const char* ranks : {"1", "2"}) {
    const TrainingFiles files;
    std::string command = HEDDLE_BINARY_DIR "/heddle";
    for (const std::string& word : files.train("run", {"--nproc-per-node", ranks}))
      command += " '" + word + "'";
    const Outcome outcome = shell(command + " >/dev/full");
    EXPECT_EQ(outcome.status, 1);
    EXPECT_EQ(outcome.error, "error[io] standard output: cannot be written\n");
    EXPECT_EQ(column(files.path("run/training.jsonl"), "step").size(), 12u);  // the run itself is complete
  }
}

TEST(Freezing, ReportsAnEmbeddingFrozenByDefault) {
  const TrainingFiles files;
  const Outcome unasked =
      heddle(files.train("run", plus(up_to("1"), {"--freeze_config", "{patterns: [norm]}"})));
  EXPECT_THAT(unasked.out, HasSubstr("  frozen  6.26 K parameters; the token embedding is among them: "
                                     "freeze_config.freeze_embeddings false trains it\n"));
  const Outcome without = heddle(files.train(
      "other", plus(up_to("1"), {"--freeze_config", "{patterns: [norm], freeze_embeddings: false}"})));
  EXPECT_THAT(without.out, HasSubstr("  frozen  120 parameters\n"));
}

TEST(Builds, AreRefusedWhenProgramAndLibraryDiffer) {
  const TrainingFiles files;
  const fs::path build = HEDDLE_BINARY_DIR;
  const std::string library = files.path("libheddle_trainer.so");
  fs::copy(build / "heddle", files.path("heddle"));
  fs::create_symlink(build / "libheddle_base.so", files.path("libheddle_base.so"));
  fs::copy(build / "tests/bad_plugins/libheddle_no_manifest.so", library);  // any library without the stamp
  const Outcome mixed = shell("'" + files.path("heddle") + "' plugins list");
  EXPECT_EQ(mixed.status, 1);
  EXPECT_THAT(mixed.error, HasSubstr("error[internal] " + library +
                                     ": the trainer's library and the program are from different builds: the "
                                     "library's commands are unknown, and the program's "));
  EXPECT_THAT(mixed.error,
              HasSubstr("hint: build both together (the target heddle_program), or reinstall heddle"));
}

}  // namespace
}  // namespace flow
