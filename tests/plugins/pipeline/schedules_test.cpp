// gpipe and 1f1b equal the execution order of PyTorch's loops, and core refuses an invalid schedule of a
// plugin.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "core/schedule/check.h"
#include "heddle/plugin/registry.h"
#include "heddle/schedule/simulate.h"
#include "plugins/pipelines.h"
#include "tests/thrown.h"

namespace heddle {
namespace {

// The FNV-1a hash of the rows, as make_schedules.py computes it.
std::string hash_of(const ScheduleTable& table) {
  std::string text;
  for (const auto& row : table) {
    if (&row != &table.front()) text += "\n";
    for (size_t i = 0; i < row.size(); ++i) text += (i == 0 ? "" : " ") + schedule::name_of(row[i]);
  }
  uint64_t value = 0xcbf29ce484222325;
  for (const unsigned char byte : text) value = (value ^ byte) * 0x100000001b3;
  char out[17];
  std::snprintf(out, sizeof out, "%016llx", static_cast<unsigned long long>(value));
  return out;
}

TEST(Schedules, EqualPyTorchsLoops) {
  std::ifstream golden(HEDDLE_SOURCE_DIR "/tests/golden/schedules/tables.txt");
  std::string name, compute, lowered;
  int ranks = 0, microbatches = 0, compared = 0;
  while (golden >> name >> ranks >> microbatches >> compute >> lowered) {
    const auto of = [&] { return name + " " + std::to_string(ranks) + " " + std::to_string(microbatches); };
    const auto maker = tests::make_schedule(name);
    const ScheduleTable table = maker->plan(ranks, ranks, microbatches);
    const auto placement = schedule::placement(*maker, ranks, ranks, name);
    ASSERT_EQ(hash_of(table), compute) << of();
    const ScheduleTable full = schedule::lower(table, placement);
    ASSERT_EQ(hash_of(full), lowered) << of();
    ASSERT_FALSE(schedule::find_fault(full, placement, microbatches)) << of();
    ++compared;
  }
  EXPECT_EQ(compared, 2 * 16 * 64);
}

TEST(Schedules, BoundThePeakOf1F1B) {
  const auto one_forward_one_backward = tests::make_schedule("1F1B");
  const auto gpipe = tests::make_schedule("GPipe");
  for (int ranks = 1; ranks <= 16; ++ranks)
    for (int microbatches = 1; microbatches <= 64; microbatches += 3) {
      const auto peak = schedule::peak_alive(one_forward_one_backward->plan(ranks, ranks, microbatches));
      for (int rank = 0; rank < ranks; ++rank)
        ASSERT_EQ(peak[rank], std::min(microbatches, ranks - rank)) << ranks << " " << microbatches;
      ASSERT_THAT(schedule::peak_alive(gpipe->plan(ranks, ranks, microbatches)), testing::Each(microbatches));
    }
}

TEST(Schedules, SupportOneStagePerRank) {
  for (const char* name : {"gpipe", "1f1b", "zb1p", "zb2p", "single"}) {
    EXPECT_EQ(tests::make_schedule(name)->stages_per_rank().least, 1) << name;
    EXPECT_EQ(tests::make_schedule(name)->stages_per_rank().most, 1) << name;
  }
}

TEST(Schedules, SupportSeveralStagesPerRankIfLooped) {
  for (const char* name : {"LoopedBFS", "looped_bfs", "dfs", "Interleaved1F1B", "interleaved_1f1b",
                           "InterleavedZeroBubble", "zero_bubble"}) {
    EXPECT_EQ(tests::make_schedule(name)->stages_per_rank().least, 2) << name;
    EXPECT_EQ(tests::make_schedule(name)->stages_per_rank().most, kAnyNumber) << name;
    EXPECT_EQ(schedule::placement(*tests::make_schedule(name), 4, 8, name), schedule::loop_placement(4, 8))
        << name;
  }
  for (const char* name : {"ZBVZeroBubble", "v_schedule", "DualPipeV", "vhalf", "vmin"}) {
    EXPECT_EQ(tests::make_schedule(name)->stages_per_rank().least, 2) << name;
    EXPECT_EQ(tests::make_schedule(name)->stages_per_rank().most, 2) << name;
    EXPECT_EQ(schedule::placement(*tests::make_schedule(name), 4, 8, name), schedule::v_placement(4, 8))
        << name;
  }
}

TEST(Schedules, AreCheckedWhenAPluginPlans) {
  // gpipe does not plan for two stages per rank: the stages 2 and 3 are missing.
  EXPECT_THAT(
      tests::thrown_by([] { tests::make_schedule("gpipe")->plan(2, 4, 2); }),
      testing::AllOf(testing::HasSubstr("error[plugin_failed] "),
                     testing::HasSubstr("libheddle_pipeline.so: rank 0, step 4: 2F0: it is missing")));
}

TEST(Schedules, SupportAnyNumberOfStagesInTheExample) {
  PluginRegistry with_example({std::filesystem::path(HEDDLE_BINARY_DIR) / "tests/examples"});
  const auto looped = with_example.schedule("looped")->make();
  EXPECT_EQ(looped->stages_per_rank().most, kAnyNumber);
  for (const int each : {1, 2, 3}) {
    const ScheduleTable table = looped->plan(4, 4 * each, 5);  // the registry's wrapper checks it
    EXPECT_EQ(table.size(), 4u);
    EXPECT_THAT(schedule::peak_alive(table), testing::Each(5 * each));
  }
}

// ---- fields of the section

PipelineConfig words(const std::string& block) {
  const OfferedSection* section = tests::built_plugins().section("pipeline");
  return section->pipeline(section->resolve(config::read_text(block + "\n", "run.yaml")).values);
}

TEST(PipelineConfig, IsReadFromTheSection) {
  const PipelineConfig defaults = words("{}");
  EXPECT_EQ(defaults.schedule, "1f1b");
  EXPECT_EQ(defaults.table, "");
  EXPECT_EQ(defaults.microbatch_size, 1);
  EXPECT_EQ(defaults.layers_per_stage, std::nullopt);
  EXPECT_EQ(defaults.rounding, StageRounding::refuse);
  EXPECT_EQ(defaults.gradients, GradientScale::none);
  EXPECT_EQ(defaults.dtype, "");
  EXPECT_FALSE(defaults.keep_receive_buffers);
  const PipelineConfig all = words(
      "{pp_schedule: GPipe, pp_microbatch_size: 3, layers_per_stage: 2, "
      "round_virtual_stages_to_pp_multiple: down, module_fqns_per_model_part: [[a], [b, c]], dtype: bf16, "
      "scale_grads_in_schedule: true, pp_recv_buffer_pool: true, pp_recv_buffer_pool_slack: 4}");
  EXPECT_EQ(all.schedule, "GPipe");
  EXPECT_EQ(all.microbatch_size, 3);
  EXPECT_EQ(all.layers_per_stage, 2);
  EXPECT_EQ(all.rounding, StageRounding::down);
  EXPECT_EQ(all.modules->at(1).at(1), "c");
  EXPECT_EQ(all.dtype, "bfloat16");
  EXPECT_EQ(all.gradients, GradientScale::by_microbatches);
  EXPECT_TRUE(all.keep_receive_buffers);
  EXPECT_EQ(all.buffer_slack, 4);
}

TEST(PipelineConfig, PrefersATableToAName) {
  const PipelineConfig with_table = words("{pp_schedule: gpipe, pp_schedule_csv: mine.csv}");
  EXPECT_EQ(with_table.table, "mine.csv");
  EXPECT_EQ(with_table.schedule, "");
}

TEST(PipelineConfig, NeedsAScheduleOrATable) {
  EXPECT_EQ(tests::thrown_by([] { words("{pp_schedule: null}"); }),
            "error[config] distributed.pipeline: Either pipeline_parallel_schedule or "
            "pipeline_parallel_schedule_csv must be provided\n"
            "  hint: set pp_schedule, or pp_schedule_csv to the path of a table");
}

TEST(PipelineConfig, RequiresATableForAClassWithoutAnOrder) {
  for (const std::string name : {"PipelineScheduleSingle", "PipelineScheduleMulti"}) {
    EXPECT_EQ(
        tests::thrown_by([&] { words("{pp_schedule: " + name + "}"); }),
        "error[config] distributed.pipeline: pp_schedule: '" + name +
            "' has no order without a table\n"
            "  hint: set pp_schedule_csv to the path of a table, or pp_schedule to a schedule such as 1f1b");
    EXPECT_EQ(words("{pp_schedule: " + name + ", pp_schedule_csv: mine.csv}").table, "mine.csv");
  }
}

TEST(PipelineConfig, ListsFieldsThatAreNotBuilt) {
  const OfferedSection* section = tests::built_plugins().section("pipeline");
  const auto not_built = [&](const std::string& block) {
    return section->resolve(config::read_text(block + "\n", "run.yaml")).not_built;
  };
  EXPECT_THAT(not_built("{}"), testing::IsEmpty());
  EXPECT_THAT(not_built("{loss_fn: nemo_automodel.components.loss.te_parallel_ce.TEParallelCrossEntropy}"),
              testing::ElementsAre("loss_fn: a pipeline uses the recipe's loss_fn"));
  EXPECT_THAT(not_built("{loss_fn: nemo_automodel.components.loss.masked_ce.MaskedCrossEntropy}"),
              testing::IsEmpty());
  EXPECT_EQ(
      tests::thrown_by([&] { not_built("{loss_fn: no.such.loss}"); }),
      "error[config] run.yaml:1 loss_fn: unknown component 'no.such.loss'; available: MaskedCrossEntropy, "
      "FusedLinearCrossEntropy, TEParallelCrossEntropy, ChunkedCrossEntropy");
}

}  // namespace
}  // namespace heddle
