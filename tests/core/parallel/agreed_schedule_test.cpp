// Schedules found by a search: one search and one table for all ranks, even if ranks would find different
// tables.
#include "core/parallel/agreed_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/schedule/simulate.h"
#include "heddle/transport/threads.h"
#include "tests/thrown.h"

namespace heddle::parallel {
namespace {

using ::testing::HasSubstr;

// Each search returns another order of the forwards. The backwards of four microbatches follow.
class Wavering : public ITimedSchedule {
 public:
  explicit Wavering(std::atomic<int>& searches) : searches_(searches) {}
  ScheduleTable plan(int ranks, int, int microbatches) const override {
    const int search = searches_++;
    if (microbatches == 1) throw Error(ErrorCode::config, "wavering", "nothing was found");
    ScheduleTable table(ranks);
    for (int rank = 0; rank < ranks; ++rank)
      for (const auto kind : {Action::forward, Action::backward})
        for (int at = 0; at < microbatches; ++at)
          table[rank].push_back({kind, rank, (at + search) % microbatches});
    return table;
  }
  ScheduleTable plan_for(int ranks, int stages, int microbatches, const Measured&) const override {
    return plan(ranks, stages, microbatches);
  }
  int rank_of(int stage, int, int) const override { return stage; }

 private:
  std::atomic<int>& searches_;
};

constexpr int kPlanners = 3;

// Result of `plan` on each rank: its error, or "" and the table.
struct Outcome {
  std::string error;
  ScheduleTable table;
};

std::vector<Outcome> on_all_ranks(std::atomic<int>& searches,
                                  const std::function<ScheduleTable(const AgreedSchedule&, int)>& plan) {
  std::vector<Outcome> outcomes(kPlanners);
  ThreadWorld::run(kPlanners, [&](Rendezvous& rendezvous) {
    const AgreedSchedule agreed(std::make_shared<Wavering>(searches), rendezvous);
    Outcome& mine = outcomes[rendezvous.rank()];
    mine.error = tests::thrown_by([&] { mine.table = plan(agreed, rendezvous.rank()); });
  });
  return outcomes;
}

TEST(AgreedSchedule, IsSearchedOnceForAllRanks) {
  std::atomic<int> searches = 1;
  const auto outcomes = on_all_ranks(searches, [](const AgreedSchedule& schedule, int) {
    const ScheduleTable first = schedule.plan(kPlanners, kPlanners, 4);
    EXPECT_EQ(schedule.plan(kPlanners, kPlanners, 4), first);
    return first;
  });
  EXPECT_EQ(searches, 2);
  std::atomic<int> again = 1;
  const ScheduleTable found = Wavering(again).plan(kPlanners, kPlanners, 4);
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.table, found);
}

TEST(AgreedSchedule, ThrowsTheErrorOfTheSearchOnAllRanks) {
  std::atomic<int> searches = 0;
  const auto plan = [](const AgreedSchedule& schedule, int) {
    return schedule.plan(kPlanners, kPlanners, 1);
  };
  for (const Outcome& outcome : on_all_ranks(searches, plan))
    EXPECT_THAT(outcome.error, HasSubstr("error[config] wavering: nothing was found"));
}

TEST(AgreedSchedule, RefusesRanksThatPlanForOtherSizes) {
  std::atomic<int> searches = 0;
  const auto plan = [](const AgreedSchedule& schedule, int rank) {
    return schedule.plan(kPlanners, kPlanners, rank == 2 ? 5 : 4);
  };
  for (const Outcome& outcome : on_all_ranks(searches, plan))
    EXPECT_THAT(outcome.error,
                HasSubstr("rank 0 plans for 3 stages on 3 ranks, 4 microbatches, rank 2 for 3 stages on 3 "
                          "ranks, 5 microbatches"));
  EXPECT_EQ(searches, 0);
}

TEST(AgreedSchedule, WrapsOnlySchedulesThatPlanForTimes) {
  std::atomic<int> searches = 0;
  PipelineConfig words;
  words.times = {{1, 1, 1, 0}};
  EXPECT_TRUE(is_searched(Wavering(searches)));
  EXPECT_TRUE(is_searched(*schedule::with_times(std::make_unique<Wavering>(searches), words)));
  EXPECT_FALSE(is_searched(AgreedSchedule(std::make_shared<Wavering>(searches), ThreadWorld(1).rank(0))));
}

}  // namespace
}  // namespace heddle::parallel
