// Number of stages, assignment of layers and units: by layers, by rounding, by names, with messages of
// refusals.
#include "core/schedule/split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "core/schedule/microbatches.h"
#include "heddle/schedule/simulate.h"
#include "tests/thrown.h"

namespace heddle {
namespace {

using schedule::count_stages;
using schedule::NamedUnit;
using schedule::split;
using testing::ElementsAre;
using testing::HasSubstr;
using tests::thrown_by;

constexpr StagesPerRank kOne{1, 1}, kSeveral{2, kAnyNumber};

PipelineConfig words_with(std::optional<int64_t> layers_per_stage,
                          StageRounding rounding = StageRounding::refuse) {
  PipelineConfig words;
  words.layers_per_stage = layers_per_stage;
  words.rounding = rounding;
  return words;
}

std::pair<int, int> counted(int64_t layers, int ranks, const PipelineConfig& words, StagesPerRank takes) {
  const schedule::StageCount count = count_stages(layers, ranks, words, takes);
  return {count.stages, count.per_rank};
}

TEST(Split, CountsStagesFromLayersPerStage) {
  using P = std::pair<int, int>;
  EXPECT_EQ(counted(32, 4, words_with(32, StageRounding::up), kOne), P(4, 1));
  EXPECT_EQ(counted(32, 4, words_with(4), kSeveral), P(8, 2));
  EXPECT_EQ(counted(32, 4, words_with(5, StageRounding::up), kSeveral), P(8, 2));
  EXPECT_EQ(counted(32, 4, words_with(3, StageRounding::down), kSeveral), P(8, 2));
  EXPECT_EQ(counted(32, 4, words_with({}), kOne), P(4, 1));
  EXPECT_EQ(counted(32, 4, words_with({}), kSeveral), P(8, 2));
  EXPECT_EQ(counted(32, 4, words_with({}), {3, 3}), P(12, 3));
}

TEST(Split, RoundsDownToAtLeastOneStage) {
  EXPECT_EQ(counted(9, 4, words_with(3, StageRounding::down), kOne), std::pair(4, 1));
}

TEST(Split, RefusesStagesThatTheRanksDoNotDivide) {
  EXPECT_EQ(thrown_by([] { count_stages(32, 4, words_with(7), kSeveral); }),
            "error[config] distributed.pipeline: Number of virtual stages (5) must be divisible by pipeline "
            "parallel size (4). Model has 32 layers with pipeline_parallel_layers_per_stage=7. Please adjust "
            "pipeline_parallel_layers_per_stage to a value that results in a number of stages divisible by "
            "4.\n  hint: change layers_per_stage, or set round_virtual_stages_to_pp_multiple to up or down");
}

TEST(Split, RefusesStagesThatTheScheduleDoesNotSupport) {
  EXPECT_THAT(thrown_by([] { count_stages(32, 4, words_with(4), kOne); }),
              HasSubstr("Single stage schedule requires exactly 1 stage per rank, but got 2 stages per rank. "
                        "Model has 32 layers with pipeline_parallel_layers_per_stage=4, resulting in "
                        "num_virtual_stages=8 across 4 PP ranks. Please increase "
                        "pipeline_parallel_layers_per_stage to 8 or higher to achieve 1 stage per rank."));
  EXPECT_THAT(
      thrown_by([] { count_stages(32, 4, words_with(8), kSeveral); }),
      HasSubstr("Multi-stage schedule requires at least 2 stages per rank, but got 1 stages per rank. "
                "Model has 32 layers with pipeline_parallel_layers_per_stage=8, resulting in "
                "num_virtual_stages=4 across 4 PP ranks. Please decrease "
                "pipeline_parallel_layers_per_stage to 4 or lower to achieve at least 2 stages per "
                "rank."));
  EXPECT_THAT(thrown_by([] {
                count_stages(32, 4, words_with(2), {2, 2});
              }),
              HasSubstr("this schedule takes at most 2 stages per rank, but got 4 stages per rank. "));
}

TEST(Split, DistributesLayersEvenly) {
  EXPECT_THAT(schedule::layers_of_stages(10, 3, "here"), ElementsAre(4, 3, 3));
  EXPECT_THAT(schedule::layers_of_stages(4, 4, "here"), ElementsAre(1, 1, 1, 1));
  EXPECT_EQ(thrown_by([] { schedule::layers_of_stages(10, 0, "here"); }),
            "error[config] here: Number of stages must be at least 1");
  EXPECT_EQ(thrown_by([] { schedule::layers_of_stages(3, 4, "here"); }),
            "error[config] here: Number of stages (4) cannot exceed number of layers (3)\n"
            "  hint: use fewer pipeline ranks, or fewer stages on each");
}

std::vector<NamedUnit> llama(int layers) {
  std::vector<NamedUnit> units = {{"model.embed_tokens", {"model.embed_tokens.weight"}}};
  for (int i = 0; i < layers; ++i) {
    const std::string name = "model.layers." + std::to_string(i);
    units.push_back({name, {name + ".mlp.up_proj.weight", name + ".input_layernorm.weight"}});
  }
  units.push_back({"lm_head", {"model.norm.weight", "lm_head.weight"}});
  return units;
}

TEST(Split, PutsTheEmbeddingFirstAndTheHeadLast) {
  const schedule::StageSplit three = split(llama(10), 3, words_with({}), kOne);
  EXPECT_THAT(three.stage_of_unit, ElementsAre(0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2));
  EXPECT_EQ(three.count.stages, 3);
  EXPECT_THAT(split(llama(5), 2, words_with(2, StageRounding::up), kSeveral).stage_of_unit,
              ElementsAre(0, 0, 0, 1, 2, 3, 3));
  EXPECT_THAT(split(llama(3), 1, words_with({}), kOne).stage_of_unit, ElementsAre(0, 0, 0, 0, 0));
  EXPECT_THAT(thrown_by([] { split(llama(3), 4, words_with({}), kOne); }),
              HasSubstr("Number of stages (4) cannot exceed number of layers (3)"));
}

TEST(Split, TreatsEveryUnitAsALayerIfNoneIsNumbered) {
  const std::vector<NamedUnit> units = {{"encoder", {}}, {"middle", {}}, {"decoder", {}}};
  EXPECT_THAT(split(units, 2, words_with({}), kOne).stage_of_unit, ElementsAre(0, 0, 1));
}

std::vector<int> by_names(std::vector<std::vector<std::string>> modules, int ranks,
                          StagesPerRank takes = kOne) {
  PipelineConfig words;
  words.modules = std::move(modules);
  return split(llama(3), ranks, words, takes).stage_of_unit;
}
std::string refused_names(std::vector<std::vector<std::string>> modules, int ranks,
                          StagesPerRank takes = kOne) {
  return thrown_by([&] { by_names(std::move(modules), ranks, takes); });
}

TEST(Split, FollowsTheNamesOfModules) {
  EXPECT_THAT(by_names({{"model.embed_tokens", "model.layers.0", "model.rotary_emb"},
                        {"model.layers.1", "model.layers.2", "model.norm", "lm_head", "model.rotary_emb"}},
                       2),
              ElementsAre(0, 0, 1, 1, 1));
  EXPECT_THAT(by_names({{"model.embed_tokens"},
                        {"model.layers.0"},
                        {"model.layers.1", "model.layers.2"},
                        {"model.norm", "lm_head"}},
                       2, kSeveral),
              ElementsAre(0, 1, 2, 2, 3));
}

TEST(Split, RefusesInvalidNames) {
  const std::string at = "error[config] distributed.pipeline: ";
  EXPECT_EQ(refused_names({{"model.embed_tokens"}}, 2), at + "Total stages 1 must be divisible by PP size 2");
  EXPECT_EQ(refused_names({{}, {}, {}, {}}, 2),
            at + "module_fqns_per_model_part gives 2 stages per rank, and the schedule takes 1");
  EXPECT_EQ(refused_names({{}, {}}, 2, kSeveral),
            at + "module_fqns_per_model_part gives 1 stages per rank, and the schedule takes 2 or more");
  EXPECT_THAT(refused_names({{"model.embed_token"}, {"lm_head"}}, 2),
              testing::AllOf(HasSubstr("the model has no module 'model.embed_token'; its units are "
                                       "model.embed_tokens, model.layers.0"),
                             HasSubstr("did you mean 'model.embed_tokens'?")));
  EXPECT_EQ(refused_names({{"model.layers.1.mlp"}, {}}, 2),
            at + "module_fqns_per_model_part: 'model.layers.1.mlp' is a part of the unit 'model.layers.1', "
                 "and stages are cut between units\n  hint: name 'model.layers.1'");
  EXPECT_THAT(
      refused_names({{"model.layers"}, {}}, 2),
      HasSubstr("'model.layers' is more than one unit: 'model.layers.0' and 'model.layers.1' at least"));
  EXPECT_THAT(refused_names({{"model.embed_tokens", "model.layers.0", "model.norm"},
                             {"model.layers.1", "model.layers.2", "lm_head"}},
                            2),
              HasSubstr("the unit 'lm_head' is on the stages 0 and 1"));
  EXPECT_THAT(refused_names({{"model.embed_tokens", "model.layers.0"}, {"model.layers.2", "lm_head"}}, 2),
              HasSubstr("no stage names the unit 'model.layers.1'"));
  EXPECT_THAT(
      refused_names(
          {{"model.embed_tokens", "model.layers.0", "model.layers.2"}, {"model.layers.1", "lm_head"}}, 2),
      HasSubstr("'model.layers.2' is on stage 0, before 'model.layers.1' on stage 1, which runs "
                "first"));
  EXPECT_THAT(
      refused_names({{"model.embed_tokens", "model.layers.0", "model.layers.1", "model.layers.2", "lm_head"},
                     {"model.rotary_emb"}},
                    2),
      HasSubstr("stage 1 holds no unit"));
}

TEST(Placement, IsALoopOrAV) {
  EXPECT_THAT(schedule::loop_placement(4, 8), ElementsAre(0, 1, 2, 3, 0, 1, 2, 3));
  EXPECT_THAT(schedule::v_placement(4, 8), ElementsAre(0, 1, 2, 3, 3, 2, 1, 0));
  EXPECT_EQ(thrown_by([] { schedule::loop_placement(4, 7); }),
            "error[config] schedule: Total stages 7 must be divisible by PP size 4");
  EXPECT_EQ(thrown_by([] { schedule::v_placement(4, 12); }),
            "error[config] schedule: the V placement holds exactly 2 stages on a rank, and 12 stages on 4 "
            "ranks are 3");
}

class Placing : public IPipelineSchedule {
 public:
  explicit Placing(std::vector<int> ranks) : ranks_(std::move(ranks)) {}
  ScheduleTable plan(int, int, int) const override { return {}; }
  int rank_of(int stage, int, int) const override { return ranks_[stage]; }

 private:
  std::vector<int> ranks_;
};

TEST(Placement, ChecksRangeAndEqualShares) {
  EXPECT_THAT(schedule::placement(Placing({1, 0, 0, 1}), 2, 4, "acme.so"), ElementsAre(1, 0, 0, 1));
  EXPECT_EQ(thrown_by([] {
              schedule::placement(Placing({0, 2}), 2, 2, "acme.so");
            }),
            "error[plugin_failed] acme.so: rank_of puts stage 1 on rank 2, and the ranks are 0 to 1");
  EXPECT_EQ(thrown_by([] {
              schedule::placement(Placing({0, 0}), 2, 2, "acme.so");
            }),
            "error[plugin_failed] acme.so: rank_of puts 2 of 2 stages on rank 0; each of 2 ranks holds the "
            "same number");
}

TEST(Microbatches, DivideTheSamplesOfARank) {
  PipelineConfig words;
  words.microbatch_size = 2;
  EXPECT_EQ(schedule::count_microbatches(8, words), 4);
  words.microbatch_size = 3;
  EXPECT_EQ(thrown_by([&] { schedule::count_microbatches(8, words); }),
            "error[config] distributed.pipeline.pp_microbatch_size: local_batch_size must be divisible by "
            "microbatch_size: 8 and 3\n  hint: change step_scheduler.local_batch_size or pp_microbatch_size");
}

TEST(Microbatches, AreNotMoreThanATableHolds) {
  PipelineConfig words;
  words.microbatch_size = 2;
  EXPECT_EQ(
      thrown_by([&] { schedule::count_microbatches(int64_t{1} << 33, words); }),
      "error[config] distributed.pipeline.pp_microbatch_size: 8589934592 samples in microbatches of 2 are "
      "4294967296 microbatches of one pass; at most 1048576 are run\n"
      "  hint: a smaller step_scheduler.local_batch_size, or a larger pp_microbatch_size");
}

TEST(Microbatches, AllowAnyNumberOfLayersPerStage) {
  PipelineConfig words;
  words.layers_per_stage = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(schedule::count_stages(8, 1, words, {1, 2}).stages, 1);
}

TEST(Microbatches, CauseAWarningIfFewerThanStages) {
  EXPECT_EQ(schedule::bubble_warning(4, 4), "");
  EXPECT_EQ(schedule::bubble_warning(3, 4),
            "Number of microbatches (3) is less than the total number of stages (4) which may result in a "
            "bubble in the pipeline.");
}

}  // namespace
}  // namespace heddle
