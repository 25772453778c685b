// Pipelines of real processes, as a user runs them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "flow/stops/started.h"
#include "tests/main/with_all.h"
#include "training_files.h"

namespace flow {
namespace {

HEDDLE_WITH_ALL("PipelineRun.GivesTheCurve*:PipelineRun.*WithPostValidation");

using ::testing::HasSubstr;

// Two stages on four ranks; the tiny model has two layers.
Words stages(const std::string& pipeline, const std::string& strategy = "fsdp2") {
  const std::string policy =
      strategy == "fsdp2" ? ", mp_policy: {param_dtype: float32, reduce_dtype: float32}" : "";
  return {"--nproc-per-node", strategy == "single" ? "2" : "4", "--distributed",
          "{strategy: " + strategy + ", pp_size: 2, pipeline: " + pipeline + policy + "}"};
}

void expect_all_near(const std::vector<double>& got, const std::vector<double>& want, double relative) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], relative * want[i]) << "step " << i;
}

TEST(PipelineRun, GivesTheCurveOfOneRankAndAModelThatLoads) {
  const TrainingFiles files;
  const Words validates = {"--validation_dataset",
                           "{file_pattern: " + files.path("train.bin") + ", seq_len: 16}",
                           "--step_scheduler.val_every_steps", "6"};
  const auto run = [&](const std::string& name, Words words) {
    words.insert(words.end(), validates.begin(), validates.end());
    return heddle(files.train(name, words));
  };
  const Outcome alone = run("alone", {"--distributed", "{strategy: single}"});
  ASSERT_EQ(alone.status, 0) << alone.error;
  const struct {
    const char *name, *pipeline, *strategy;
  } cases[] = {
      {"fsdp2", "{pp_schedule: 1f1b}", "fsdp2"},
      {"gpipe", "{pp_schedule: GPipe, pp_microbatch_size: 2}", "fsdp2"},
      {"auto",
       "{pp_schedule: auto, pp_schedule_times: [[1, 1, 1, 0.5], [2, 2, 3, 0]], pp_schedule_limit: 2, "
       "layers_per_stage: 1}",
       "fsdp2"},
      {"single", "{}", "single"}};
  for (const auto& one : cases) {
    SCOPED_TRACE(one.name);
    const Outcome outcome = run(one.name, stages(one.pipeline, one.strategy));
    ASSERT_EQ(outcome.status, 0) << outcome.error;
    const auto numbers = [&](const std::string& of, const std::string& file, const std::string& key) {
      return column(files.path(of + "/" + file), key);
    };
    expect_all_near(numbers(one.name, "training.jsonl", "loss"), numbers("alone", "training.jsonl", "loss"),
                    2e-5);
    expect_all_near(numbers(one.name, "training.jsonl", "grad_norm"),
                    numbers("alone", "training.jsonl", "grad_norm"), 2e-4);
    expect_all_near(numbers(one.name, "validation.jsonl", "loss"),
                    numbers("alone", "validation.jsonl", "loss"), 2e-5);
    const Words words = {"generate", files.path(one.name), "--prompt", "warp ", "--max-tokens", "6"};
    const Outcome text = heddle(words);
    EXPECT_EQ(text.status, 0) << text.error;
    EXPECT_THAT(text.out, ::testing::StartsWith("warp "));
  }
}

// Two stages on each of two ranks: a forward on one overlaps a backward on the other.
TEST(PipelineRun, WritesTheSameLinesWithOverlappedActions) {
  const TrainingFiles files;
  for (const std::string overlap : {"false", "true"}) {
    Words words = stages("{pp_schedule: dualpipev, pp_overlap: " + overlap +
                         ", module_fqns_per_model_part: [[model.embed_tokens], [model.layers.0], "
                         "[model.layers.1], [model.norm, lm_head]]}");
    words.insert(words.end(), {"--step_scheduler.local_batch_size", "4"});  // as many microbatches
    const Outcome outcome = heddle(files.train(overlap, words));
    ASSERT_EQ(outcome.status, 0) << outcome.error;
  }
  for (const std::string column_name : {"loss", "grad_norm"})
    EXPECT_EQ(column(files.path("true/training.jsonl"), column_name),
              column(files.path("false/training.jsonl"), column_name));
}

// Every line of the metrics. About every other step is clipped, and three events interrupt the steps.
TEST(PipelineRun, WritesTheSameLinesWithPostValidation) {
  const TrainingFiles files;
  const auto run = [&](const std::string& name, const std::string& early) {
    Words words = stages("{pp_schedule: zb2p, pp_post_validation: " + early + "}");
    words.insert(words.end(),
                 {"--validation_dataset", "{file_pattern: " + files.path("train.bin") + ", seq_len: 16}",
                  "--step_scheduler.val_every_steps", "5", "--step_scheduler.ckpt_every_steps", "4",
                  "--clip_grad_norm.max_norm", "1.0"});
    return heddle(files.train(name, words));
  };
  for (const char* early : {"false", "true"}) {
    const Outcome outcome = run(early, early);
    ASSERT_EQ(outcome.status, 0) << outcome.error;
  }
  for (const char* file : {"training.jsonl", "validation.jsonl"})
    EXPECT_EQ(without_clock(files.path("true/" + std::string(file))),
              without_clock(files.path("false/" + std::string(file))));
}

TEST(PipelineRun, GivesTheCurveOfOneRankWithTensorParallelStages) {
  const TrainingFiles files;
  const auto run = [&](const std::string& name, Words words) {
    words.insert(words.end(),
                 {"--model.config.num_attention_heads", "4", "--model.config.num_key_value_heads", "2",
                  "--model.config.vocab_size", "257"});
    return heddle(files.train(name, words));
  };
  const Outcome alone = run("alone", {"--distributed", "{strategy: single}"});
  ASSERT_EQ(alone.status, 0) << alone.error;
  for (const char* strategy :
       {"fsdp2, sequence_parallel: true, mp_policy: {param_dtype: float32, reduce_dtype: float32}", "ddp"}) {
    SCOPED_TRACE(strategy);
    const Outcome outcome =
        run("split", {"--nproc-per-node", "4", "--distributed",
                      "{strategy: " + std::string(strategy) + ", tp_size: 2, pp_size: 2, pipeline: {}}"});
    ASSERT_EQ(outcome.status, 0) << outcome.error;
    for (const auto& [key, relative] : {std::pair{"loss", 2e-5}, std::pair{"grad_norm", 2e-4}})
      expect_all_near(column(files.path("split/training.jsonl"), key),
                      column(files.path("alone/training.jsonl"), key), relative);
    const Outcome text = heddle({"generate", files.path("split"), "--prompt", "warp ", "--max-tokens", "6"});
    EXPECT_EQ(text.status, 0) << text.error;
    std::filesystem::remove_all(files.path("split"));
  }
}

TEST(PipelineRun, ReportsItsStagesAndPasses) {
  const TrainingFiles files;
  const Outcome outcome = heddle(files.train("run", stages("{pp_schedule: 1F1B}", "single")));
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_THAT(outcome.out, HasSubstr("single on 2 ranks (pp 2)"));
  EXPECT_THAT(outcome.out,
              HasSubstr("8 samples per step = 1 data-parallel x 4 passes x 2 samples; 128 tokens"));
  EXPECT_THAT(outcome.out,
              HasSubstr("  stages  2 on 2 ranks, schedule 1f1b; a pass is 2 microbatches of 1 sample\n"));
}

TEST(PipelineRun, TakesATableFromAFile) {
  const TrainingFiles files;
  files.write("table.csv", "0F0,0F1,,0B0,,0B1\n,1F0,1B0,1F1,1B1,\n");
  const Outcome outcome =
      heddle(files.train("run", stages("{pp_schedule_csv: " + files.path("table.csv") + "}", "single")));
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_EQ(column(files.path("run/training.jsonl"), "step").size(), 12u);
}

TEST(PipelineRun, WarnsOfAScheduleThatOverlapsNothing) {
  const TrainingFiles files;
  const Outcome outcome = heddle(files.train("run", stages("{pp_overlap: true}", "single")));
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_THAT(outcome.error, HasSubstr(".pp_overlap has no effect: the schedule '1f1b' overlaps no actions"));
}

TEST(PipelineRun, EndsOnEveryRankWhenOneDies) {
  const TrainingFiles files;
  Words words = stages("{}");
  words.insert(words.end(),
               {"--step_scheduler.max_steps", "1000000", "--step_scheduler.num_epochs", "1000000"});
  Started run(files.train("run", words));
  ASSERT_TRUE(eventually([&] { return column(files.path("run/training.jsonl"), "step").size() > 2; }));
  const std::vector<pid_t> ranks = run.children();
  ASSERT_EQ(ranks.size(), 4u);
  kill(ranks[3], SIGKILL);
  const Outcome outcome = run.wait();
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.error, HasSubstr("error[rank_lost]"));
  EXPECT_THAT(outcome.error, HasSubstr("rank 3"));
  for (const pid_t rank : ranks) EXPECT_FALSE(is_alive(rank));
}

}  // namespace
}  // namespace flow
