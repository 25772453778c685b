// Properties of zb1p, zb2p, vhalf and vmin: length and memory if F, I and W take the same time.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/schedule/tables.h"
#include "heddle/schedule/simulate.h"
#include "plugins/pipeline/schedules.h"

namespace heddle::pipeline {
namespace {

constexpr schedule::Costs kEqual{1, 2, 1, 1, 0};

struct Ran {
  double length = 0,
         span = 0;  // of the whole schedule; span: the longest from a rank's first start to its last end
  int peak = 0;
};

Ran ran(const IPipelineSchedule& schedule, int ranks, int each, int microbatches) {
  const int stages = ranks * each;
  const ScheduleTable table = schedule.plan(ranks, stages, microbatches);
  std::vector<int> placement;
  for (int stage = 0; stage < stages; ++stage) placement.push_back(schedule.rank_of(stage, ranks, stages));
  EXPECT_EQ(tests::table_error(table, placement, microbatches), "");
  const ScheduleTable lowered = schedule::lower(table, placement);
  EXPECT_EQ(tests::table_error(lowered, placement, microbatches), "");
  EXPECT_EQ(tests::late_receives(lowered, placement), 0);
  const schedule::Simulation run = schedule::simulate(table, placement, kEqual);
  Ran out{run.length, 0, *std::max_element(run.peak.begin(), run.peak.end())};
  for (const auto& times : run.times) out.span = std::max(out.span, times.back().end - times.front().start);
  return out;
}

TEST(ZeroBubble, HasAThirdOfTheBubbleOf1F1BForZb1p) {
  for (const int ranks : {2, 4, 8})
    for (const int microbatches : {8, 16, 32}) {
      const Ran run = ran(OneStage<zb1p>(), ranks, 1, microbatches);
      EXPECT_EQ(run.length, 3 * microbatches + ranks - 1) << ranks << " " << microbatches;
      EXPECT_LE(run.peak, ranks);
    }
}

TEST(ZeroBubble, HasNoIdleTimeForZb2p) {
  for (const int ranks : {2, 4, 8})
    for (const int microbatches : {8, 16, 32}) {
      const Ran run = ran(OneStage<zb2p>(), ranks, 1, microbatches);
      const int few = ranks == 8 && microbatches == 8 ? 7 : 0;  // too few to fill eight ranks
      EXPECT_EQ(run.span, 3 * microbatches + few) << ranks << " " << microbatches;
      EXPECT_LE(run.peak, 2 * ranks);
    }
}

// Peaks count stages, two per rank: 1f1b keeps 2 * ranks of them.
TEST(ControllableMemory, NeedsHalfTheMemoryForVHalf) {
  const std::vector<std::array<int, 3>> rows = {{2, 1, 4}, {4, 5, 6}, {8, 17, 10}};
  for (const auto& [ranks, over, peak] : rows)
    for (const int microbatches : {8, 16, 32}) {
      const Ran run = ran(InAV<v_half>(), ranks, 2, microbatches);
      EXPECT_LE(run.length, 6 * microbatches + over) << ranks << " " << microbatches;
      EXPECT_LE(run.peak, peak);
    }
}

TEST(ControllableMemory, NeedsAThirdOfTheMemoryForVMin) {
  const std::vector<std::array<int, 3>> rows = {{2, 3, 4}, {4, 11, 4}, {8, 27, 8}};
  for (const auto& [ranks, over, peak] : rows)
    for (const int microbatches : {8, 16, 32}) {
      const Ran run = ran(InAV<v_min>(), ranks, 2, microbatches);
      EXPECT_LE(run.length, 6 * microbatches + over) << ranks << " " << microbatches;
      EXPECT_LE(run.peak, peak);
    }
}

TEST(Schedules, SupportEverySize) {
  for (int ranks = 1; ranks <= 9; ++ranks)
    for (int microbatches = 1; microbatches <= 20; ++microbatches) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::to_string(microbatches));
      for (const int each : {1, 2, 3}) EXPECT_GT(ran(Looped<dfs>(), ranks, each, microbatches).length, 0);
      EXPECT_GT(ran(OneStage<zb1p>(), ranks, 1, microbatches).length, 0);
      EXPECT_GT(ran(OneStage<zb2p>(), ranks, 1, microbatches).length, 0);
      EXPECT_LE(ran(InAV<v_half>(), ranks, 2, microbatches).peak, ranks + 2);
      EXPECT_LE(ran(InAV<v_min>(), ranks, 2, microbatches).peak, 2 * ((ranks + 1) / 3) + 2);
    }
}

TEST(Schedules, RunOnlyForwardsForAnyNumberOfMicrobatches) {
  for (int ranks = 1; ranks <= 6; ++ranks)
    for (const int each : {1, 2, 3})
      for (const int microbatches : {1, 2, 5, 8}) {
        SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::to_string(each) + " each");
        const auto loop = schedule::loop_placement(ranks, ranks * each);
        const auto wave = schedule::forward_wave(loop, ranks, microbatches);
        EXPECT_EQ(tests::table_error(wave, loop, microbatches, schedule::Purpose::evaluation), "");
        EXPECT_EQ(tests::table_error(schedule::lower(wave, loop), loop, microbatches,
                                     schedule::Purpose::evaluation),
                  "");
        if (each != 2) continue;
        const auto v = schedule::v_placement(ranks, 2 * ranks);
        const auto both = schedule::forward_wave(v, ranks, microbatches);
        EXPECT_EQ(
            tests::table_error(schedule::lower(both, v), v, microbatches, schedule::Purpose::evaluation), "");
      }
}

// Depth first: a round of as many microbatches as ranks goes through all stages before the next round.
TEST(Schedules, RunRoundsThroughAllStagesForDfs) {
  EXPECT_EQ(tests::rows_of(dfs({2, 4, 3})),
            (std::vector<std::string>{"0F0 0F1 2F0 2F1 0F2 2F2 2B2 0B2 2B1 2B0 0B1 0B0",
                                      "1F0 1F1 3F0 3F1 1F2 3F2 3B2 1B2 3B1 3B0 1B1 1B0"}));
}

}  // namespace
}  // namespace heddle::pipeline
