// A schedule that is planned for the times and the memory limit of the section pipeline.
#include <gtest/gtest.h>

#include "heddle/base/error.h"
#include "heddle/schedule/simulate.h"
#include "plugins/pipeline/schedules.h"
#include "plugins/pipeline/search.h"
#include "tests/thrown.h"

namespace heddle::schedule {
namespace {

PipelineConfig timed_fields(std::vector<std::vector<double>> times, std::optional<double> limit = {}) {
  PipelineConfig words;
  words.where = "run.yaml:3 distributed.pipeline";
  words.schedule = "gpipe";
  words.times = std::move(times);
  words.limit = limit;
  return words;
}

TEST(TimedFields, DetermineTheTable) {
  const pipeline::Auto plain;
  const std::vector<Costs> uneven = {{1, 2, 1, 1, 0.5}, {1, 2, 1, 1, 0.5}, {3, 6, 3, 3, 0}};
  const auto timed = with_times(std::make_unique<pipeline::Auto>(),
                                timed_fields({{1, 1, 1, 0.5}, {1, 1, 1, 0.5}, {3, 3, 3, 0}}, 2));
  EXPECT_EQ(timed->plan(3, 3, 8), plain.plan_for(3, 3, 8, {uneven, 2}));
  EXPECT_NE(timed->plan(3, 3, 8), plain.plan(3, 3, 8));
  EXPECT_EQ(timed->rank_of(2, 3, 3), 2);
  // One row applies to all layers of a rank.
  const auto shared = with_times(std::make_unique<pipeline::Auto>(), timed_fields({{2, 4, 2, 1}}));
  EXPECT_EQ(shared->plan(2, 4, 6),
            plain.plan_for(2, 4, 6, {std::vector<Costs>(4, Costs{1, 3, 2, 1, 1}), Measured().limit}));
  EXPECT_EQ(shared->stages_per_rank().most, plain.stages_per_rank().most);
}

TEST(TimedFields, HaveNoEffectWithoutTimes) {
  auto made = std::make_unique<pipeline::OneStage<pipeline::gpipe>>();
  const IPipelineSchedule* same = made.get();
  EXPECT_EQ(with_times(std::move(made), timed_fields({})).get(), same);
}

TEST(TimedFields, AreRefusedIfTheScheduleIgnoresThem) {
  const auto gpipe = [](const PipelineConfig& words) {
    return tests::thrown_by(
        [&] { with_times(std::make_unique<pipeline::OneStage<pipeline::gpipe>>(), words); });
  };
  EXPECT_EQ(gpipe(timed_fields({{1, 1, 1, 0}})),
            "error[config] run.yaml:3 distributed.pipeline: pp_schedule_times is given, and the schedule "
            "'gpipe' plans for no times\n"
            "  hint: set pp_schedule: auto, or leave the times and the limit out");
  EXPECT_EQ(gpipe(timed_fields({}, 3)),
            "error[config] run.yaml:3 distributed.pipeline: pp_schedule_limit is given, and the schedule "
            "'gpipe' plans for no times\n"
            "  hint: set pp_schedule: auto, or leave the times and the limit out");
  const auto rows =
      with_times(std::make_unique<pipeline::Auto>(), timed_fields({{1, 1, 1, 0}, {1, 1, 1, 0}}));
  EXPECT_EQ(
      tests::thrown_by([&] { rows->plan(3, 3, 8); }),
      "error[config] run.yaml:3 distributed.pipeline: pp_schedule_times has 2 rows, and the pipeline has "
      "3 stages\n  hint: give one row for all layers of a rank, or one for each stage");
}

}  // namespace
}  // namespace heddle::schedule
