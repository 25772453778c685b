// Places where lowering gathers and frees the parameters of a stage.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "heddle/schedule/simulate.h"
#include "plugins/pipeline/schedules.h"

namespace heddle::schedule {
namespace {

constexpr int kGatherRanks = 3, kGatherEach = 5, kGatherMicrobatches = 6;

TEST(Gathering, GathersAStageWhileAnotherRunsAndHoldsAtMostThree) {
  const pipeline::Looped<pipeline::looped_bfs> bfs;
  const pipeline::Looped<pipeline::interleaved_1f1b> interleaved;
  for (const IPipelineSchedule* schedule : std::vector<const IPipelineSchedule*>{&bfs, &interleaved}) {
    const int stages = kGatherRanks * kGatherEach;
    const auto placed = placement(*schedule, kGatherRanks, stages, "test");
    const ScheduleTable table = lower(schedule->plan(kGatherRanks, stages, kGatherMicrobatches), placed);
    for (const auto& row : table) {
      std::set<int> whole, hidden;  // hidden: an action of another stage ran since the gather
      bool began = false;
      for (const Action& action : row) {
        if (action.kind == Action::unshard) {
          EXPECT_TRUE(whole.insert(action.stage).second);
          if (!began) hidden.insert(action.stage);  // no earlier action could hide it
        }
        if (action.kind == Action::reshard) {
          EXPECT_EQ(whole.erase(action.stage), 1u);
          hidden.erase(action.stage);
        }
        EXPECT_LE(whole.size(), 3u);
        if (!computes(action.kind)) continue;
        began = true;
        EXPECT_EQ(whole.count(action.stage), 1u) << name_of(action);
        // Before its first action a stage was gathered while another stage ran.
        if (hidden.insert(action.stage).second) ADD_FAILURE() << name_of(action) << " waits for its gather";
        for (const int stage : whole)
          if (stage != action.stage) hidden.insert(stage);
      }
      EXPECT_TRUE(whole.empty());
    }
  }
}

}  // namespace
}  // namespace heddle::schedule
