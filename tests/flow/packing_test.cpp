// Packed samples in whole runs have the losses of separate samples, on any topology, also when resumed.
#include <gmock/gmock.h>

#include "flow/stops/started.h"
#include "tests/main/with_all.h"
#include "training_files.h"

namespace flow {
namespace {

HEDDLE_WITH_ALL("Packing.Leaves*:Packing.GivesOneCurve*:Packing.Resumes*");

using ::testing::Each;
using ::testing::HasSubstr;

constexpr int kSamples = 23;

// Bytes of text in samples of 3 to 20 tokens, and a file of their lengths.
class Packing : public ::testing::Test {
 protected:
  Packing() {
    std::string text, lengths;
    for (uint32_t i = 0, state = 3; i < kSamples; ++i) {
      state = state * 1664525u + 1013904223u;
      const size_t length = 3 + (state >> 24) % 18;
      labels_ += static_cast<int>(length) - 1;
      for (size_t j = 0; j < length; ++j) text += static_cast<char>('a' + (state >> (j % 20)) % 26);
      lengths += std::to_string(length) + "\n";
    }
    files_.write("docs.txt", text);
    files_.write("docs.lengths", lengths);
    const Outcome made = heddle({"data", files_.path("docs.txt"), "--out", files_.path("docs.bin")});
    EXPECT_EQ(made.status, 0) << made.error;
  }

  Words words(const std::string& run, const Words& more) const {
    return plus(files_.train(run, {"--dataset",
                                   "{file_pattern: " + files_.path("docs.bin") +
                                       ", lengths: " + files_.path("docs.lengths") + ", seq_len: 20}",
                                   "--step_scheduler.num_epochs", "6", "--model.config.num_attention_heads",
                                   "4", "--model.config.num_key_value_heads", "2"}),
                more);
  }
  Words packed(const std::string& run, const Words& more = {}, const std::string& strategy = "thd") const {
    return plus(
        words(run, {"--packed_sequence", "{packed_sequence_size: 20, packing_strategy: " + strategy + "}"}),
        more);
  }
  std::vector<double> trained(const Words& words, const std::string& run, const std::string& key) const {
    const Outcome outcome = heddle(words);
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    return column(files_.path(run + "/training.jsonl"), key);
  }
  void expect_curve(const std::vector<double>& got, const std::vector<double>& want, double relative) const {
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], relative * want[i]) << i;
  }

  TrainingFiles files_;
  int labels_ = 0;
};

TEST_F(Packing, ResumesOnOtherRankCounts) {
  const auto up_to = [](const char* steps) {
    return Words{"--step_scheduler.max_steps", steps, "--step_scheduler.global_batch_size", "4"};
  };
  const Words cp = {"--distributed",
                    "{strategy: fsdp2, cp_size: 2, mp_policy: {param_dtype: float32, reduce_dtype: float32}}",
                    "--nproc-per-node", "2"};
  const auto whole = trained(packed("whole", up_to("6")), "whole", "loss");
  trained(plus(packed("cut", up_to("3")), cp), "cut", "loss");
  expect_curve(trained(packed("cut", up_to("6")), "cut", "loss"), whole, 2e-5);
}

Words whole(int rows) {  // per step
  return {"--step_scheduler",
          "{local_batch_size: 1, max_steps: 6, global_batch_size: " + std::to_string(rows) + "}"};
}

TEST_F(Packing, LeavesSampleLossesUnchanged) {
  const auto losses = trained(words("alone", whole(kSamples)), "alone", "loss");
  const auto norms = column(files_.path("alone/training.jsonl"), "grad_norm");
  EXPECT_THAT(column(files_.path("alone/training.jsonl"), "num_label_tokens"), Each(labels_));
  for (const auto& [strategy, packs] : {std::pair{std::string("thd"), 17}, {"neat", 13}}) {
    expect_curve(trained(packed(strategy, whole(packs), strategy), strategy, "loss"), losses, 2e-5);
    expect_curve(column(files_.path(strategy + "/training.jsonl"), "grad_norm"), norms, 2e-4);
    EXPECT_THAT(column(files_.path(strategy + "/training.jsonl"), "num_label_tokens"), Each(labels_));
  }
}

// Convolutions, states and multi-token prediction heads restart at each sample of a pack.
TEST_F(Packing, LeavesTheLossesOfRecurrentModelsUnchanged) {
  const std::pair<const char*, std::string> models[] = {
      {"delta",
       "{model_type: qwen3_5_text, vocab_size: 256, hidden_size: 16, intermediate_size: 24, "
       "num_hidden_layers: "
       "4, num_attention_heads: 2, num_key_value_heads: 1, head_dim: 8, linear_num_key_heads: 2, "
       "linear_num_value_heads: 2, linear_key_head_dim: 8, linear_value_head_dim: 8}"},
      {"mamba",
       "{model_type: nemotron_h, vocab_size: 256, hidden_size: 16, intermediate_size: 24, "
       "hybrid_override_pattern: 'M*-M', num_attention_heads: 2, num_key_value_heads: 1, head_dim: 8, "
       "mamba_num_heads: 4, mamba_head_dim: 4, ssm_state_size: 6, n_groups: 2, num_nextn_predict_layers: 2, "
       "mtp_hybrid_override_pattern: 'M*'}"}};
  for (const auto& [name, config] : models) {
    const Words model = {"--model.config", config};
    const std::string alone = std::string(name) + "_alone", packs = std::string(name) + "_packed";
    const auto losses = trained(plus(words(alone, whole(kSamples)), model), alone, "loss");
    const auto norms = column(files_.path(alone + "/training.jsonl"), "grad_norm");
    expect_curve(trained(plus(packed(packs, whole(17)), model), packs, "loss"), losses, 2e-5);
    expect_curve(column(files_.path(packs + "/training.jsonl"), "grad_norm"), norms, 2e-4);
  }
}

TEST_F(Packing, PacksValidationSetsWithoutChangingTheirLoss) {
  const auto validated = [&](const std::string& run, const std::string& rows) {
    const Words more = {"--validation_dataset",
                        "{file_pattern: " + files_.path("docs.bin") +
                            ", lengths: " + files_.path("docs.lengths") + rows + "}",
                        "--step_scheduler.val_every_steps",
                        "1",
                        "--step_scheduler.max_steps",
                        "2",
                        "--packed_sequence.max_packs",
                        "8"};
    const Outcome outcome = heddle(plus(packed(run, {}), more));
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    return run + "/validation.jsonl";
  };
  const std::string packs = files_.path(validated("packs", "")),
                    alone = files_.path(validated("alone", ", seq_len: 20"));
  expect_curve(column(packs, "loss"), column(alone, "loss"), 2e-5);
  EXPECT_EQ(column(packs, "loss").size(), 2u);
  EXPECT_THAT(column(packs, "num_label_tokens"), Each(labels_));  // max_packs applies to the training data
}

TEST_F(Packing, GivesOneCurveOnEveryTopology) {
  const Words steps = {"--step_scheduler.max_steps", "6", "--step_scheduler.global_batch_size", "4"};
  const auto losses =
      trained(plus(packed("one", steps), {"--distributed", "{strategy: single}"}), "one", "loss");
  const std::string fp32 = "mp_policy: {param_dtype: float32, reduce_dtype: float32}";
  for (const std::string method : {"allgather", "ring", "ulysses", "ring_ulysses"}) {
    const Words more = {"--distributed",
                        "{strategy: fsdp2, cp_size: 2, context: {method: " + method + "}, " + fp32 + "}",
                        "--nproc-per-node", "2"};
    expect_curve(trained(plus(packed(method, steps), more), method, "loss"), losses, 2e-5);
  }
  for (const std::string more : {"", "pp_size: 2, pipeline: {pp_schedule: 1f1b, pp_microbatch_size: 1}, ",
                                 "tp_size: 2, sequence_parallel: true, "}) {
    const Words two = {"--distributed", "{strategy: fsdp2, " + more + fp32 + "}", "--nproc-per-node", "2"};
    const std::string run = "two" + std::to_string(more.size());
    expect_curve(trained(plus(packed(run, steps), two), run, "loss"), losses, 2e-5);
  }
}

TEST_F(Packing, ResumesMidEpochBitForBit) {
  const auto up_to = [](const char* steps) {
    return Words{"--step_scheduler.max_steps", steps, "--step_scheduler.global_batch_size", "4"};
  };
  for (const std::string strategy : {"thd", "neat"}) {
    ASSERT_EQ(heddle(packed("whole_" + strategy, up_to("8"), strategy)).status, 0);
    ASSERT_EQ(heddle(packed("cut_" + strategy, up_to("3"), strategy)).status, 0);
    const Outcome rest = heddle(packed("cut_" + strategy, up_to("8"), strategy));
    ASSERT_EQ(rest.status, 0) << rest.error;
    EXPECT_EQ(without_clock(files_.path("cut_" + strategy + "/training.jsonl")),
              without_clock(files_.path("whole_" + strategy + "/training.jsonl")));
    EXPECT_EQ(read_text(files_.path("cut_" + strategy + "/LATEST/model/manifest.json")),
              read_text(files_.path("whole_" + strategy + "/LATEST/model/manifest.json")));
  }
}

TEST_F(Packing, IsTheSameWhereARunGoesOn) {
  const Words steps = {"--step_scheduler.max_steps", "2"};
  ASSERT_EQ(heddle(packed("run", steps)).status, 0);
  const Outcome other = heddle(packed("run", {}, "neat"));
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.error,
              HasSubstr("was saved with a different data order: packed_sequence was thd packs of 20 "
                        "tokens, now neat packs of 20 tokens"));
  EXPECT_THAT(heddle(words("run", {})).error,
              HasSubstr("packed_sequence was thd packs of 20 tokens, now off"));
  EXPECT_THAT(heddle(packed("run", {"--dataset.reset_attention_at", "101"})).error,
              HasSubstr("dataset.reset_attention_at was null, now 101"));
  files_.write("docs.lengths", "4\n" + read_text(files_.path("docs.lengths")));
  EXPECT_THAT(heddle(packed("run")).error, HasSubstr("the lengths of 24 samples add up to"));
}

TEST_F(Packing, TrainsWithLongContextInTheExamples) {
  const std::string examples = HEDDLE_SOURCE_DIR "/examples/";
  const Words common = {"--step_scheduler.max_steps",
                        "2",
                        "--step_scheduler.num_epochs",
                        "2",
                        "--lr_scheduler",
                        "none",
                        "--step_scheduler.local_batch_size",
                        "1",
                        "--step_scheduler.global_batch_size",
                        "2"};
  Words packing = {"train", examples + "packed.yaml", "--nproc-per-node", "2"};
  packing = plus(packing, {"--dataset.file_pattern", files_.path("docs.bin"), "--dataset.lengths",
                           files_.path("docs.lengths"), "--packed_sequence.packed_sequence_size", "40",
                           "--checkpoint.checkpoint_dir", files_.path("packed_example")});
  EXPECT_EQ(trained(plus(packing, common), "packed_example", "loss").size(), 2u);
  Words context = {"train", examples + "long_context.yaml", "--nproc-per-node", "4"};
  context = plus(context, {"--dataset.file_pattern", files_.path("train.bin"), "--dataset.seq_len", "64",
                           "--checkpoint.checkpoint_dir", files_.path("long_example")});
  EXPECT_EQ(trained(plus(context, common), "long_example", "loss").size(), 2u);
}

TEST_F(Packing, ReportsDroppedSamples) {
  const Words small = {"--packed_sequence.packed_sequence_size",
                       "12",
                       "--dataset.seq_len",
                       "12",
                       "--step_scheduler.max_steps",
                       "1"};
  const Outcome outcome = heddle(packed("run", small));
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(
      outcome.error,
      HasSubstr(
          "samples are longer than packed_sequence_size 12 and are discarded; the longest has 19 inputs"));
}

}  // namespace
}  // namespace flow
