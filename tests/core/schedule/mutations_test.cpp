// Valid tables with one random fault: each is refused.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "core/schedule/check.h"
#include "heddle/schedule/simulate.h"
#include "tests/core/schedule/tables.h"

namespace heddle {
namespace {

using schedule::lower;
using tests::table_error;

tests::Planned any_planned() {
  const int ranks = *rc::gen::inRange(2, 7);
  const int microbatches = *rc::gen::inRange(1, 12);
  const auto all = tests::every_kind(ranks, microbatches);
  return all[*rc::gen::inRange<size_t>(0, all.size())];
}

// Returns a random position in a table, uniform over its actions.
std::pair<int, int> any_place(const ScheduleTable& table) {
  const int rank = *rc::gen::inRange(0, static_cast<int>(table.size()));
  return {rank, *rc::gen::inRange(0, static_cast<int>(table[rank].size()))};
}

void expect_refused(const tests::Planned& planned, const ScheduleTable& broken) {
  const std::string fault = table_error(broken, planned.rank_of_stage, planned.microbatches);
  RC_ASSERT(fault.starts_with("rank "));
}

TEST(ScheduleMutations, RefuseADroppedAction) {
  EXPECT_TRUE(rc::check([] {
    const tests::Planned planned = any_planned();
    const bool lowered = *rc::gen::arbitrary<bool>();
    ScheduleTable table = lowered ? lower(planned.table, planned.rank_of_stage) : planned.table;
    const auto [rank, step] = any_place(table);
    table[rank].erase(table[rank].begin() + step);
    expect_refused(planned, table);
  }));
}

TEST(ScheduleMutations, RefuseARepeatedAction) {
  EXPECT_TRUE(rc::check([] {
    const tests::Planned planned = any_planned();
    ScheduleTable table = lower(planned.table, planned.rank_of_stage);
    const auto [rank, step] = any_place(table);
    const int again = *rc::gen::inRange(0, static_cast<int>(table[rank].size()) + 1);
    const Action action = table[rank][step];
    table[rank].insert(table[rank].begin() + again, action);
    expect_refused(planned, table);
  }));
}

TEST(ScheduleMutations, RefuseAnActionOnAnotherRank) {
  EXPECT_TRUE(rc::check([] {
    const tests::Planned planned = any_planned();
    ScheduleTable table = lower(planned.table, planned.rank_of_stage);
    const auto [rank, step] = any_place(table);
    const Action action = table[rank][step];
    table[rank].erase(table[rank].begin() + step);
    auto& other = table[(rank + 1) % table.size()];
    other.insert(other.begin() + *rc::gen::inRange<size_t>(0, other.size() + 1), action);
    expect_refused(planned, table);
  }));
}

TEST(ScheduleMutations, RefuseTwoSwappedTransfers) {
  EXPECT_TRUE(rc::check([] {
    const tests::Planned planned = any_planned();
    ScheduleTable table = lower(planned.table, planned.rank_of_stage);
    const int rank = *rc::gen::inRange(0, static_cast<int>(table.size()));
    std::vector<size_t> moves;
    for (size_t step = 0; step < table[rank].size(); ++step)
      if (schedule::sends(table[rank][step].kind) || schedule::receives(table[rank][step].kind))
        moves.push_back(step);
    RC_PRE(moves.size() >= 2);
    const size_t first = *rc::gen::inRange<size_t>(0, moves.size() - 1);
    const Action &a = table[rank][moves[first]], &b = table[rank][moves[first + 1]];
    RC_PRE(planned.rank_of_stage[schedule::peer_stage(a)] == planned.rank_of_stage[schedule::peer_stage(b)]);
    std::swap(table[rank][moves[first]], table[rank][moves[first + 1]]);
    expect_refused(planned, table);
  }));
}

TEST(ScheduleMutations, RefuseABackwardBeforeItsForward) {
  EXPECT_TRUE(rc::check([] {
    const tests::Planned planned = any_planned();
    ScheduleTable table = planned.table;
    const int stage = *rc::gen::inRange<int>(0, planned.rank_of_stage.size());
    const int microbatch = *rc::gen::inRange(0, planned.microbatches);
    auto& row = table[planned.rank_of_stage[stage]];
    const auto of_it = [&](const Action& action) {
      return action.stage == stage && action.microbatch == microbatch;
    };
    const auto forward = std::find_if(row.begin(), row.end(), of_it);
    const auto backward = std::find_if(forward + 1, row.end(), of_it);
    std::rotate(forward, backward, backward + 1);
    expect_refused(planned, table);
  }));
}

}  // namespace
}  // namespace heddle
