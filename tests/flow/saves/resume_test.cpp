// A resumed run has the metrics and models of a run that never stopped.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "flow/stops/started.h"
#include "flow/training_files.h"
#include "tests/main/with_all.h"

namespace flow {
namespace {

HEDDLE_WITH_ALL("ResumeElsewhere.*:Of/Resume.*/zero1:Of/Resume.*/ddp:Of/Resume.*/pp:Of/Resume.*/tp");

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Heads that two ranks can split.
Words resumed_up_to(const std::string& steps) {
  return {"--step_scheduler.max_steps",         steps, "--model.config.num_attention_heads", "2",
          "--model.config.num_key_value_heads", "2"};
}

// Returns the tensors of a checkpoint by file. The manifests contain the checksums of all of them.
std::string tensors_of(const std::string& checkpoint) {
  return read_text(checkpoint + "/model/manifest.json") + read_text(checkpoint + "/optim/manifest.json");
}

struct SavedTopology {
  std::string name;
  Words words;
};

std::vector<SavedTopology> topologies() {
  return {
      {"single", {"--distributed", "{strategy: single}"}},
      {"ddp", {"--distributed", "{strategy: ddp}", "--nproc-per-node", "2"}},
      {"fsdp", {"--nproc-per-node", "2"}},
      {"mixed", {"--nproc-per-node", "2", "--model.dtype", "bfloat16", "--optimizer.master_weights", "true"}},
      {"zero1", {"--distributed", "{strategy: megatron_fsdp, zero_dp_strategy: 1}", "--nproc-per-node", "2"}},
      {"zero3", {"--distributed", "{strategy: megatron_fsdp, zero_dp_strategy: 3}", "--nproc-per-node", "2"}},
      {"tp",
       {"--distributed",
        "{strategy: fsdp2, tp_size: 2, mp_policy: {param_dtype: float32, reduce_dtype: float32}}",
        "--nproc-per-node", "2"}},
      {"pp",
       {"--distributed", "{strategy: ddp, pp_size: 2, pipeline: {pp_schedule: 1f1b, pp_microbatch_size: 1}}",
        "--nproc-per-node", "2"}},
      {"muon", {"--nproc-per-node", "2", "--optimizer", "{_target_: dion.Muon, lr: 0.003}"}}};
}

class Resume : public ::testing::TestWithParam<size_t> {};

TEST_P(Resume, IsBitForBitExact) {
  const TrainingFiles files;
  const SavedTopology topology = topologies()[GetParam()];
  const Outcome whole = heddle(plus(files.train("whole", topology.words), resumed_up_to("8")));
  ASSERT_EQ(whole.status, 0) << whole.error;
  ASSERT_EQ(heddle(plus(files.train("cut", topology.words), resumed_up_to("4"))).status, 0);
  const Outcome rest = heddle(plus(files.train("cut", topology.words), resumed_up_to("8")));
  ASSERT_EQ(rest.status, 0) << rest.error;
  EXPECT_THAT(rest.out,
              HasSubstr("resumes " + files.path("cut/epoch_0_step_3") + ": continues with step 5 of 8"));
  EXPECT_EQ(column(files.path("whole/training.jsonl"), "step").size(), 8u);
  EXPECT_EQ(without_clock(files.path("cut/training.jsonl")),
            without_clock(files.path("whole/training.jsonl")));
  EXPECT_THAT(tensors_of(files.path("whole/epoch_0_step_7")), HasSubstr("exp_avg_sq.lm_head.weight"));
  EXPECT_EQ(tensors_of(files.path("cut/epoch_0_step_7")), tensors_of(files.path("whole/epoch_0_step_7")));
}

INSTANTIATE_TEST_SUITE_P(Of, Resume, ::testing::Range(size_t{0}, topologies().size()),
                         [](const auto& info) { return topologies()[info.param].name; });

// Resumes from each topology on the next but one, so that each is used for both.
TEST(ResumeElsewhere, GivesTheSameLosses) {
  const TrainingFiles files;
  Outcome one = heddle(plus(files.train("single", topologies()[0].words), resumed_up_to("6")));
  ASSERT_EQ(one.status, 0) << one.error;
  const std::vector<double> want = column(files.path("single/training.jsonl"), "loss");
  for (const auto& [from, to] :
       std::vector<std::pair<size_t, size_t>>{{0, 5}, {1, 2}, {2, 7}, {4, 6}, {5, 4}, {6, 1}, {7, 0}}) {
    const std::string run = topologies()[from].name + "_" + topologies()[to].name;
    ASSERT_EQ(heddle(plus(files.train(run, topologies()[from].words), resumed_up_to("3"))).status, 0) << run;
    const Outcome rest = heddle(plus(files.train(run, topologies()[to].words), resumed_up_to("6")));
    ASSERT_EQ(rest.status, 0) << run << rest.error;
    const std::vector<double> got = column(files.path(run + "/training.jsonl"), "loss");
    ASSERT_EQ(got.size(), want.size()) << run;
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 2e-5 * want[i]) << run << " " << i;
  }
}

TEST(ResumeData, KeepsItsPositionInALaterEpoch) {
  const TrainingFiles files;
  const Words small = {"--dataset.seq_len",
                       "900",
                       "--model.config.max_position_embeddings",
                       "900",
                       "--step_scheduler.num_epochs",
                       "4",
                       "--distributed",
                       "{strategy: single}"};
  const Outcome whole = heddle(plus(files.train("whole", small), resumed_up_to("none")));
  ASSERT_EQ(whole.status, 0) << whole.error;
  const std::vector<double> epochs = column(files.path("whole/training.jsonl"), "epoch");
  ASSERT_EQ(epochs.back(), 3);
  ASSERT_GE(epochs.size(), 8u);
  const std::string half = std::to_string(epochs.size() / 2 + 1);
  ASSERT_EQ(heddle(plus(files.train("cut", small), resumed_up_to(half))).status, 0);
  ASSERT_EQ(heddle(plus(files.train("cut", small), resumed_up_to("none"))).status, 0);
  EXPECT_EQ(without_clock(files.path("cut/training.jsonl")),
            without_clock(files.path("whole/training.jsonl")));
}

TEST(ResumeFrom, AcceptsTheNewestANameAPathOrAPointer) {
  const TrainingFiles files;
  const Words often = {"--step_scheduler.ckpt_every_steps", "2", "--checkpoint.save_consolidated", "false"};
  ASSERT_EQ(heddle(plus(files.train("run", often), resumed_up_to("6"))).status, 0);
  EXPECT_EQ(fs::read_symlink(files.path("run/LATEST")), "epoch_0_step_5");
  const std::pair<std::string, std::string> words[] = {{"epoch_0_step_1", "step 3 of 7"},
                                                       {files.path("run/epoch_0_step_3"), "step 5 of 7"},
                                                       {"LATEST", "step 7 of 7"},
                                                       {"null", "step 7 of 7"}};
  for (const auto& [word, step] : words) {
    fs::remove_all(files.path("copy"));
    fs::copy(files.path("run"), files.path("copy"),
             fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    for (const char* later : {"epoch_0_step_3", "epoch_0_step_5"})
      if (word == "epoch_0_step_1") fs::remove_all(files.path("copy/") + later);
    const Words from = {"--checkpoint.restore_from", word, "--step_scheduler.ckpt_every_steps", "100"};
    const Outcome outcome = heddle(plus(files.train("copy", from), resumed_up_to("7")));
    EXPECT_EQ(outcome.status, 0) << word << outcome.error;
    EXPECT_THAT(outcome.out, HasSubstr("continues with " + step)) << word;
    EXPECT_EQ(column(files.path("copy/training.jsonl"), "step").size(), 7u) << word;
  }
}

TEST(ResumeFrom, RefusesAMissingOrIncompleteCheckpoint) {
  const TrainingFiles files;
  const auto refusal = [&](const std::string& word) {
    const Outcome outcome = heddle(files.train("run", {"--checkpoint.restore_from", word}));
    EXPECT_EQ(outcome.status, 2);
    return outcome.error;
  };
  EXPECT_EQ(refusal("epoch_0_step_9"),
            "error[input] checkpoint.restore_from: neither " + files.path("run/epoch_0_step_9") +
                " nor epoch_0_step_9 exists\n  hint: give the name of a directory in " + files.path("run") +
                ", a path, LATEST or LOWEST_VAL\n");
  fs::create_directories(files.path("run/epoch_0_step_9/model"));
  EXPECT_EQ(refusal("epoch_0_step_9"),
            "error[input] checkpoint.restore_from: " + files.path("run/epoch_0_step_9") +
                " is not a complete checkpoint: it needs step_scheduler.json, model/manifest.json and "
                "optim/manifest.json\n  hint: to start from a model without optimizer state, set "
                "model.pretrained_model_name_or_path\n");
}

TEST(ResumeFrom, StartsFreshWhenAPointerIsDangling) {
  const TrainingFiles files;
  const Outcome outcome =
      heddle(plus(files.train("run", {"--checkpoint.restore_from", "LATEST"}), resumed_up_to("1")));
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_THAT(outcome.error, HasSubstr("warning: restore_from is LATEST, and " + files.path("run/LATEST") +
                                       " names no complete checkpoint; starting fresh"));
}

TEST(ResumeFrom, RefusesAPointerWithoutTargetBesideOtherCheckpoints) {
  const TrainingFiles files;
  ASSERT_EQ(heddle(plus(files.train("run"), resumed_up_to("2"))).status, 0);
  const Outcome outcome =
      heddle(plus(files.train("run", {"--checkpoint.restore_from", "LOWEST_VAL"}), resumed_up_to("3")));
  EXPECT_EQ(outcome.status, 2);
  EXPECT_EQ(outcome.error, "error[input] checkpoint.restore_from: is LOWEST_VAL, but " +
                               files.path("run/LOWEST_VAL") +
                               " names no complete checkpoint\n  hint: name a checkpoint of " +
                               files.path("run") + ", such as the newest: epoch_0_step_1\n");
}

TEST(ResumeChecks, SkipsACheckpointOfAnotherModel) {
  const TrainingFiles files;
  ASSERT_EQ(heddle(plus(files.train("run"), resumed_up_to("2"))).status, 0);
  const Words wider = {"--model.config.intermediate_size", "48"};
  const Outcome outcome = heddle(plus(files.train("run", wider), resumed_up_to("3")));
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_THAT(outcome.error,
              HasSubstr("warning: Auto-detected checkpoint at " + files.path("run/epoch_0_step_1") +
                        " is incompatible with current model configuration: intermediate_size was "
                        "40, now 48. Skipping restore."));
  const Outcome asked = heddle(plus(
      files.train("run", plus(wider, {"--checkpoint.restore_from", "epoch_0_step_1"})), resumed_up_to("4")));
  EXPECT_EQ(asked.status, 2);
  EXPECT_THAT(asked.error, HasSubstr("this run needs [48"));
}

TEST(ResumeChecks, RefusesAnotherDataOrder) {
  const TrainingFiles files;
  ASSERT_EQ(heddle(plus(files.train("run"), resumed_up_to("2"))).status, 0);
  const std::pair<const char*, const char*> changes[] = {{"--seed", "8"},
                                                         {"--step_scheduler.global_batch_size", "16"},
                                                         {"--dataset.seq_len", "8"},
                                                         {"--dataloader.shuffle", "false"}};
  for (const auto& [key, value] : changes) {
    const Outcome outcome = heddle(plus(files.train("run", {key, value}), resumed_up_to("4")));
    EXPECT_EQ(outcome.status, 2) << key;
    EXPECT_THAT(outcome.error,
                HasSubstr("error[config] checkpoint.restore_from: " + files.path("run/epoch_0_step_1") +
                          " was saved with a different data order: "))
        << key;
    EXPECT_THAT(outcome.error, HasSubstr("hint: resume with the same data, or set")) << key;
  }
}

TEST(ResumeDamage, IsReportedOnEveryRankAndChangesNoFile) {
  const TrainingFiles files;
  const Words two = {"--nproc-per-node", "2"};
  ASSERT_EQ(heddle(plus(files.train("run", two), resumed_up_to("2"))).status, 0);
  const std::string file =
      files.path("run/epoch_0_step_1/model/shard-00002-model-00001-of-00001.safetensors");
  std::string bytes = read_text(file);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  std::ofstream(file, std::ios::binary) << bytes;
  const Outcome outcome = heddle(plus(files.train("run", two), resumed_up_to("4")));
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.error, HasSubstr("error[input] " + file + ": tensor \""));
  EXPECT_THAT(outcome.error, HasSubstr("the bytes are not those that were saved"));
  EXPECT_THAT(outcome.error, Not(HasSubstr("rank_lost")));
  EXPECT_EQ(column(files.path("run/training.jsonl"), "step").size(), 2u);
}

TEST(ResumeDone, TakesNoFurtherStep) {
  const TrainingFiles files;
  ASSERT_EQ(heddle(plus(files.train("run"), resumed_up_to("2"))).status, 0);
  const Outcome again = heddle(plus(files.train("run"), resumed_up_to("2")));
  EXPECT_EQ(again.status, 0) << again.error;
  EXPECT_THAT(again.out, HasSubstr(": all 2 steps are done\n"));
  EXPECT_THAT(again.error, Not(HasSubstr("warning: ")));
  const std::string last = files.path("run/epoch_0_step_1");
  fs::remove_all(last + "/model/consolidated");
  EXPECT_THAT(heddle(plus(files.train("run"), resumed_up_to("2"))).error,
              HasSubstr("warning: " + last + " has no exported model; run heddle convert " + last +
                        " MODEL to export it\n"));
  EXPECT_THAT(column(files.path("run/training.jsonl"), "step"), ElementsAre(0, 1));
}

TEST(Checkpoints, AreCompleteAndInTheExpectedDirectories) {
  const TrainingFiles files;
  ASSERT_EQ(heddle(plus(files.train("run", {"--nproc-per-node", "2"}), resumed_up_to("2"))).status, 0);
  const std::string checkpoint = files.path("run/epoch_0_step_1/");
  for (const char* file :
       {"model/manifest.json", "model/shard-00001-model-00001-of-00001.safetensors",
        "model/shard-00002-model-00001-of-00001.safetensors", "model/consolidated/model.safetensors",
        "optim/manifest.json", "optim/shard-00002-optim-00001-of-00001.safetensors", "losses.json",
        "config.yaml", "step_scheduler.json"})
    EXPECT_TRUE(fs::exists(checkpoint + file)) << file;
  EXPECT_FALSE(fs::exists(files.path("run/epoch_0_step_1.incomplete")));
  const std::vector<double> losses = column(files.path("run/training.jsonl"), "loss");
  EXPECT_EQ(column(checkpoint + "losses.json", "train_loss"), std::vector<double>{losses.back()});
  EXPECT_EQ(column(checkpoint + "step_scheduler.json", "step"), std::vector<double>{2});
  EXPECT_EQ(column(checkpoint + "step_scheduler.json", "sample"), std::vector<double>{16});
}

TEST(Checkpoints, DoNotOverwriteAPublishedOne) {
  const TrainingFiles files;
  fs::create_directories(files.path("run/epoch_0_step_1"));
  const Outcome outcome = heddle(plus(files.train("run", {"--nproc-per-node", "2"}), resumed_up_to("2")));
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.error, HasSubstr(files.path("run/epoch_0_step_1") +
                                       " already exists and would be overwritten at step 2, because the run "
                                       "starts at step 1\n  hint: remove this checkpoint"));
  EXPECT_FALSE(fs::exists(files.path("run/training.jsonl")));
}

TEST(Checkpoints, AreUnchangedWhenTheDiskIsFull) {
  const TrainingFiles files;
  ASSERT_EQ(heddle(plus(files.train("run", {"--nproc-per-node", "2"}), resumed_up_to("2"))).status, 0);
  const std::string before = tensors_of(files.path("run/epoch_0_step_1"));
  std::string command = "ulimit -f 8; " HEDDLE_BINARY_DIR "/heddle";
  for (const std::string& word : plus(files.train("run", {"--nproc-per-node", "2"}), resumed_up_to("4")))
    command += " '" + word + "'";
  const Outcome full = shell("trap '' XFSZ; " + command);
  EXPECT_EQ(full.status, 1);
  EXPECT_THAT(full.error, HasSubstr("hint: make room on the disk"));
  EXPECT_FALSE(fs::exists(files.path("run/epoch_0_step_3")));
  EXPECT_FALSE(fs::exists(files.path("run/epoch_0_step_3.incomplete")));  // its disk space is freed at once
  EXPECT_EQ(fs::read_symlink(files.path("run/LATEST")), "epoch_0_step_1");
  EXPECT_EQ(tensors_of(files.path("run/epoch_0_step_1")), before);
  EXPECT_EQ(heddle(plus(files.train("run", {"--nproc-per-node", "2"}), resumed_up_to("4"))).status, 0);
}

}  // namespace
}  // namespace flow
