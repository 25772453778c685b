// The schedule auto: never longer than a named one, and much shorter for uneven times.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/schedule/tables.h"
#include "heddle/base/error.h"
#include "heddle/schedule/simulate.h"
#include "plugins/pipeline/schedules.h"
#include "plugins/pipeline/search.h"
#include "tests/thrown.h"

namespace heddle::pipeline {
namespace {

using schedule::Costs;

constexpr Costs kEven{1, 2, 1, 1, 0};

std::vector<int> placed(const IPipelineSchedule& schedule, int ranks, int stages) {
  std::vector<int> rank_of_stage;
  for (int stage = 0; stage < stages; ++stage)
    rank_of_stage.push_back(schedule.rank_of(stage, ranks, stages));
  return rank_of_stage;
}

double peak_of(const ScheduleTable& table, int each) {
  const auto peaks = schedule::peak_alive(table);
  return double(*std::max_element(peaks.begin(), peaks.end())) / each;
}

// Returns the length of the shortest named schedule that supports the sizes within the limit.
double best_named(const Sizes& sizes, const Measured& measured) {
  std::vector<std::unique_ptr<IPipelineSchedule>> all;
  if (sizes.each() == 1) {
    all.push_back(std::make_unique<OneStage<gpipe>>());
    all.push_back(std::make_unique<OneStage<one_forward_one_backward>>());
    all.push_back(std::make_unique<OneStage<zb1p>>());
    all.push_back(std::make_unique<OneStage<zb2p>>());
  } else {
    all.push_back(std::make_unique<Looped<looped_bfs>>());
    all.push_back(std::make_unique<Looped<dfs>>());
    all.push_back(std::make_unique<Looped<interleaved_1f1b>>());
    all.push_back(std::make_unique<Looped<interleaved_zero_bubble>>());
    if (sizes.each() == 2) all.push_back(std::make_unique<InAV<zbv_zero_bubble>>());
    if (sizes.each() == 2 && sizes.microbatches >= sizes.stages)
      all.push_back(std::make_unique<InAV<dual_pipe_v>>());
    if (sizes.each() == 2) all.push_back(std::make_unique<InAV<v_half>>());
    if (sizes.each() == 2) all.push_back(std::make_unique<InAV<v_min>>());
  }
  double best = 1e300;
  for (const auto& named : all) {
    const ScheduleTable table = named->plan(sizes.ranks, sizes.stages, sizes.microbatches);
    if (peak_of(table, sizes.each()) > measured.limit) continue;
    const auto run = schedule::simulate(table, placed(*named, sizes.ranks, sizes.stages), measured.stages);
    best = std::min(best, run.length);
  }
  return best;
}

// Returns the length of auto's schedule after checking it.
double found(const Sizes& sizes, const Measured& measured) {
  const Auto automatic;
  const ScheduleTable table = automatic.plan_for(sizes.ranks, sizes.stages, sizes.microbatches, measured);
  const auto placement = placed(automatic, sizes.ranks, sizes.stages);
  EXPECT_EQ(tests::table_error(table, placement, sizes.microbatches), "");
  EXPECT_EQ(tests::table_error(schedule::lower(table, placement), placement, sizes.microbatches), "");
  EXPECT_LE(peak_of(table, sizes.each()), measured.limit);
  return schedule::simulate(table, placement, measured.stages).length;
}

Measured alike(const Sizes& sizes, const Costs& costs, double limit = Measured().limit) {
  return {std::vector<Costs>(sizes.stages, costs), limit};
}

TEST(AutoSchedule, IsNeverLongerThanANamedOne) {
  for (const auto& [ranks, each] : {std::pair{3, 1}, {4, 1}, {4, 2}, {2, 3}})
    for (const int microbatches : {4, 8})
      for (const Costs& costs : {kEven, Costs{1, 2.4, 1.4, 1, 0.5}})
        for (const double limit : {1e9, 1.0 * ranks}) {
          const Sizes sizes{ranks, ranks * each, microbatches};
          SCOPED_TRACE(std::to_string(ranks) + " x " + std::to_string(each) + ", " +
                       std::to_string(microbatches) + ", transfer " + std::to_string(costs.transfer));
          const Measured measured = alike(sizes, costs, limit);
          EXPECT_LE(found(sizes, measured), best_named(sizes, measured) + 1e-9);
        }
}

// Three cases where it is at least a tenth shorter. The numbers: auto, and the best named table.
TEST(AutoSchedule, IsATenthShorterForUnevenTimes) {
  const Sizes four{4, 4, 16};
  Measured slow = alike(four, {1, 2, 1, 1, 1}, 6);  // every link is slow, and memory for six microbatches
  EXPECT_LE(found(four, slow), 57);
  EXPECT_EQ(best_named(four, slow), 71);
  Measured middle = alike(four, kEven, 4);  // one slow link, between two machines
  middle.stages[1].transfer = 4;
  EXPECT_LE(found(four, middle), 79);
  EXPECT_EQ(best_named(four, middle), 109);
  const Sizes eight{8, 8, 16};
  Measured heavy = alike(eight, kEven, 8);  // a large head, and the slow link
  heavy.stages[7] = {1.25, 2.5, 1.25, 1.25, 0};
  heavy.stages[3].transfer = 4;
  EXPECT_LE(found(eight, heavy), 0.9 * best_named(eight, heavy));
}

TEST(AutoSchedule, GivesTheSameTableTwice) {
  const Sizes sizes{4, 8, 8};
  const Measured measured = alike(sizes, {1, 2, 1, 1, 0.3}, 3);
  EXPECT_EQ(Auto().plan_for(4, 8, 8, measured), Auto().plan_for(4, 8, 8, measured));
}

TEST(AutoSchedule, RespectsASmallLimitAndRefusesATooSmallOne) {
  const Sizes sizes{4, 8, 8};
  EXPECT_GT(found(sizes, alike(sizes, kEven, 2)), 0);
  EXPECT_EQ(tests::thrown_by([&] { Auto().plan_for(4, 8, 8, alike(sizes, kEven, 0.5)); }),
            "error[config] schedule auto: no order of 8 stages on 4 ranks stays within the limit of 0.5 "
            "microbatches\n"
            "  hint: raise the limit to at least 1, or use fewer stages per rank");
}

TEST(AutoSchedule, SupportsSixteenRanksAndSixtyFourMicrobatches) {
  for (const int each : {1, 2}) {
    const Sizes sizes{16, 16 * each, 64};
    const Measured measured = alike(sizes, {1, 2, 1, 1, 0.5}, 20);
    EXPECT_LE(found(sizes, measured), best_named(sizes, measured) + 1e-9);
  }
}

}  // namespace
}  // namespace heddle::pipeline
