// Data sets of plugins in whole runs: one curve on any ranks, resuming, rows of unequal length, refusals.
#include <gmock/gmock.h>

#include <filesystem>
#include <numeric>

#include "flow/training_files.h"
#include "tests/main/with_all.h"

namespace flow {
namespace {

HEDDLE_WITH_ALL("PluginData.*WithUnequalLengths");

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

const std::string kFp32 = "mp_policy: {param_dtype: float32, reduce_dtype: float32}";

class PluginData : public ::testing::Test {
 protected:
  Words words(const std::string& run, const std::string& dataset, const Words& more = {}) const {
    return plus(files_.train(run, {"--dataset", dataset, "--step_scheduler.num_epochs", "9",
                                   "--step_scheduler.global_batch_size", "6",
                                   "--step_scheduler.local_batch_size", "2"}),
                more);
  }
  std::vector<double> trained(const Words& words, const std::string& run,
                              const std::string& key = "loss") const {
    const Outcome outcome = heddle(words);
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    return column(files_.path(run + "/training.jsonl"), key);
  }
  void expect_curve(const std::vector<double>& got, const std::vector<double>& want) const {
    ASSERT_EQ(got.size(), want.size());
    ASSERT_FALSE(want.empty());
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 2e-5 * want[i]) << i;
  }
  std::string refusal(const std::string& dataset, const Words& more = {}) const {
    const Outcome outcome = heddle(words("refused", dataset, more));
    EXPECT_EQ(outcome.status, 2) << outcome.out;
    return outcome.error;
  }

  TrainingFiles files_;
};

const std::string kUniform =
    "{_target_: nemo.mock_iterable_dataset.MockIterableDataset, seq_len: 12, num_samples: 40}";
const std::string kSentences =
    "{_target_: nemo.mock.build_unpacked_dataset, num_sentences: 20, mean_len: 9, std_len: 4, "
    "max_sentence_len: 20}";
const std::string kLoader = "{_target_: torch.utils.data.DataLoader, batch_size: null, num_workers: 0}";
const Words kSix = {"--step_scheduler.max_steps", "6"};

TEST_F(PluginData, GivesOneCurveOnOneTwoAndThreeRanks) {
  const auto run = [&](const std::string& name, const Words& more) {
    return trained(words(name, kUniform, plus(plus(kSix, {"--dataloader", kLoader}), more)), name);
  };
  const auto one = run("one", {});
  expect_curve(run("two", {"--step_scheduler.local_batch_size", "1", "--nproc-per-node", "2"}), one);
  expect_curve(run("three", {"--nproc-per-node", "3"}), one);
}

TEST_F(PluginData, ResumesOnOtherRanks) {
  const auto whole = trained(words("whole", kUniform, kSix), "whole");
  const Words three = {"--step_scheduler.max_steps", "3", "--nproc-per-node", "3"};
  trained(words("cut", kUniform, three), "cut");
  expect_curve(trained(words("cut", kUniform, kSix), "cut"), whole);
}

TEST_F(PluginData, RefusesToResumeWithOtherData) {
  trained(words("cut", kUniform, {"--step_scheduler.max_steps", "3"}), "cut");
  const auto resumed = [&](const Words& more) { return heddle(words("cut", kUniform, plus(kSix, more))); };
  const Outcome seed = resumed({"--seed", "8"});
  EXPECT_EQ(seed.status, 2);
  EXPECT_THAT(seed.error, HasSubstr("was saved with a different data order: seed was 7, now 8"));
  const Outcome vocabulary = resumed({"--dataset.vocab_size", "100"});
  EXPECT_EQ(vocabulary.status, 2);
  EXPECT_THAT(vocabulary.error, HasSubstr("the data set was 40 samples of 12 uniform tokens below 256, "
                                          "version 1, now 40 samples of 12 uniform tokens below 100"));
  // Without shuffling the seed still determines the tokens.
  const Words in_order = {"--dataloader.shuffle", "false"};
  trained(words("ordered", kUniform, plus(in_order, {"--step_scheduler.max_steps", "3"})), "ordered");
  EXPECT_THAT(heddle(words("ordered", kUniform, plus(plus(kSix, in_order), {"--seed", "8"}))).error,
              HasSubstr("was saved with a different data order: seed was 7, now 8"));
}

// A sample of one token has no label.
TEST_F(PluginData, RefusesDataWithoutLabels) {
  EXPECT_THAT(refusal("{_target_: MockIterableDataset, seq_len: 1}"),
              HasSubstr("none of the 6 samples of the first step has a token with a label"));
  EXPECT_THAT(refusal(kUniform,
                      {"--validation_dataset", "{_target_: MockIterableDataset, seq_len: 1, num_samples: 4}",
                       "--step_scheduler.val_every_steps", "1"}),
              HasSubstr("error[input] validation_dataset: none of its 4 samples has a token with a label"));
}

TEST_F(PluginData, ValidatesEachSet) {
  const Words more = {"--validation_dataset_words",       kSentences, "--validation_dataset_mock", kUniform,
                      "--step_scheduler.val_every_steps", "3"};
  trained(words("run", kUniform, plus(kSix, more)), "run");
  for (const auto& [set, labels] : {std::pair{"words", 0.0}, {"mock", 40.0 * 11}}) {
    const std::string file = files_.path("run/validation_" + std::string(set) + ".jsonl");
    EXPECT_EQ(column(file, "loss").size(), 2u) << file;
    if (labels > 0) {
      EXPECT_THAT(column(file, "num_label_tokens"), Each(labels));
    }
  }
}

TEST_F(PluginData, GivesOneCurveOnEveryTopologyWithUnequalLengths) {
  const Words loader = {"--dataloader.collate_fn", "{_target_: default_collater, pad_seq_len_divisible: 8}"};
  const auto run = [&](const std::string& name, const std::string& strategy, const Words& more = {}) {
    const Words all = plus(kSix, {"--distributed", "{" + strategy + "}", "--model.config.num_attention_heads",
                                  "4", "--model.config.num_key_value_heads", "2"});
    return trained(words(name, kSentences, plus(all, more)), name);
  };
  const auto one = run("one", "strategy: single");
  expect_curve(run("rounded", "strategy: single", loader), one);
  const std::string fsdp2 = "strategy: fsdp2, " + kFp32;
  const Words two = {"--nproc-per-node", "2"};
  expect_curve(run("fsdp2", fsdp2, {"--nproc-per-node", "3"}), one);
  expect_curve(run("cp", fsdp2 + ", cp_size: 2", two), one);
  expect_curve(run("pp", fsdp2 + ", pp_size: 2, pipeline: {pp_schedule: 1f1b, pp_microbatch_size: 1}", two),
               one);
  expect_curve(run("tp", fsdp2 + ", tp_size: 2, sequence_parallel: true", two), one);
  expect_curve(run("recomputed", fsdp2 + ", activation_checkpointing: full", {"--nproc-per-node", "3"}), one);
  // Tokens per second count sentences, not padding.
  EXPECT_EQ(column(files_.path("one/training.jsonl"), "num_tokens_per_step"),
            column(files_.path("rounded/training.jsonl"), "num_tokens_per_step"));
  EXPECT_EQ(column(files_.path("one/training.jsonl"), "num_tokens_per_step"),
            column(files_.path("one/training.jsonl"), "num_label_tokens"));
}

TEST_F(PluginData, IsPackedWithUnequalLengths) {
  const Words all = {"--step_scheduler.max_steps", "1", "--step_scheduler.local_batch_size", "1"};
  const auto loss = [&](const std::string& run, const Words& more) {
    return trained(words(run, kSentences, plus(all, more)), run);
  };
  const auto alone = loss("alone", {"--step_scheduler.global_batch_size", "20"});
  const Words packs = {"--packed_sequence", "{packed_sequence_size: 30}"};
  const Outcome banner = heddle(words("banner", kSentences, plus(all, packs)));
  const size_t at = banner.out.find(" packs of 30 tokens, of 20 samples");
  ASSERT_NE(at, std::string::npos) << banner.out << banner.error;
  const size_t begin = banner.out.rfind(' ', at - 1) + 1;
  const std::string count = banner.out.substr(begin, at - begin);
  expect_curve(loss("packed", plus(packs, {"--step_scheduler.global_batch_size", count})), alone);
}

}  // namespace
}  // namespace flow
