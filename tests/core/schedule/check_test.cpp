// Tables that the checker accepts and refuses, with its messages.
#include "core/schedule/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/schedule/single.h"
#include "heddle/schedule/simulate.h"
#include "tests/core/schedule/tables.h"
#include "tests/thrown.h"

namespace heddle {
namespace {

using schedule::lower;
using schedule::Purpose;
using tests::table_error;

TEST(ScheduleCheck, AcceptsEveryKindOfScheduleBeforeAndAfterLowering) {
  for (int ranks = 1; ranks <= 6; ++ranks)
    for (int microbatches : {1, 2, 3, 5, 8, 13})
      for (const tests::Planned& planned : tests::every_kind(ranks, microbatches)) {
        const auto say = [&] { return planned.name + " on " + std::to_string(ranks); };
        ASSERT_EQ(table_error(planned.table, planned.rank_of_stage, microbatches), "") << say();
        const ScheduleTable lowered = lower(planned.table, planned.rank_of_stage);
        ASSERT_EQ(table_error(lowered, planned.rank_of_stage, microbatches), "") << say();
        const ScheduleTable forwards =
            lower(schedule::forward_wave(planned.rank_of_stage, static_cast<int>(planned.table.size()),
                                         planned.microbatches),
                  planned.rank_of_stage);
        ASSERT_EQ(table_error(forwards, planned.rank_of_stage, microbatches, Purpose::evaluation), "")
            << say();
      }
}

// Two ranks, two microbatches, with every transfer.
struct Pair {
  tests::Planned planned = tests::fill_and_drain(2, 2);
  ScheduleTable table = lower(planned.table, planned.rank_of_stage);
  std::string fault() const { return table_error(table, planned.rank_of_stage, 2); }
  std::vector<Action>& row(int rank) { return table[rank]; }
  size_t at(int rank, const std::string& name) {
    for (size_t i = 0; i < row(rank).size(); ++i)
      if (schedule::name_of(row(rank)[i]) == name) return i;
    ADD_FAILURE() << name;
    return 0;
  }
  Pair& drop(int rank, const std::string& name) {
    row(rank).erase(row(rank).begin() + at(rank, name));
    return *this;
  }
  Pair& swap(int rank, const std::string& a, const std::string& b) {
    std::swap(row(rank)[at(rank, a)], row(rank)[at(rank, b)]);
    return *this;
  }
  Pair& insert(int rank, size_t at, Action action) {
    row(rank).insert(row(rank).begin() + at, action);
    return *this;
  }
  Pair& append(int rank, Action action) { return insert(rank, row(rank).size(), action); }
  Pair& split(int rank, const std::string& backward) {
    row(rank)[at(rank, backward)].kind = Action::backward_input;
    return *this;
  }
};

TEST(ScheduleCheck, AcceptsTheTableOfTheseTests) {
  EXPECT_THAT(tests::rows_of(Pair().table),
              testing::ElementsAre(
                  "0UNSHARD 0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1 0REDUCE_GRAD 0RESHARD",
                  "1UNSHARD 1RECV_F0 1F0 1RECV_F1 1F1 1B0 1SEND_B0 1B1 1SEND_B1 1REDUCE_GRAD 1RESHARD"));
}

TEST(ScheduleCheck, NamesAMissingComputation) {
  EXPECT_EQ(Pair().drop(1, "1F1").fault(), "rank 1, step 6: 1B1: its forward 1F1 is missing");
  EXPECT_EQ(Pair().drop(0, "0B1").fault(), "rank 0, step 10: 0B1: it is missing: the row ends without it");
  EXPECT_EQ(Pair().split(0, "0B1").fault(), "rank 0, step 11: 0W1: it is missing: the row ends without it");
}

TEST(ScheduleCheck, NamesAMissingTransfer) {
  EXPECT_EQ(Pair().drop(1, "1RECV_F1").fault(), "rank 1, step 3: 1F1: its input by 1RECV_F1 is missing");
  EXPECT_EQ(Pair().drop(0, "0SEND_F1").fault(),
            "rank 1, step 3: 1RECV_F1: no rank sends it: 0SEND_F1 is missing on rank 0");
}

TEST(ScheduleCheck, NamesAMissingStepOfAStage) {
  EXPECT_EQ(Pair().drop(1, "1REDUCE_GRAD").fault(),
            "rank 1, step 10: 1REDUCE_GRAD: it is missing: the row ends without it");
  EXPECT_EQ(Pair().drop(0, "0UNSHARD").fault(),
            "rank 0, step 9: 0RESHARD: the stage is not gathered here: 0UNSHARD is missing before it");
  EXPECT_EQ(Pair().drop(0, "0RESHARD").fault(),
            "rank 0, step 10: 0RESHARD: it is missing: the row ends without it");
  EXPECT_EQ(Pair().swap(0, "0UNSHARD", "0F0").fault(),
            "rank 0, step 0: 0F0: the stage is not gathered here: 0UNSHARD is missing before it");
}

TEST(ScheduleCheck, NamesARepeatedAction) {
  EXPECT_EQ(Pair().insert(0, 3, {Action::forward, 0, 0}).fault(),
            "rank 0, step 3: 0F0: it is repeated: it is at step 1 already");
  EXPECT_EQ(Pair().append(1, {Action::backward_weight, 1, 0}).fault(),
            "rank 1, step 11: 1W0: it is repeated: the whole backward is at step 5 already");
  EXPECT_EQ(Pair().insert(1, 0, {Action::unshard, 1, 0}).fault(),
            "rank 1, step 1: 1UNSHARD: it is repeated: the stage is gathered already");
  EXPECT_EQ(Pair().append(1, {Action::reduce_gradients, 1, 0}).fault(),
            "rank 1, step 11: 1REDUCE_GRAD: it is repeated: it is at step 9 already");
}

TEST(ScheduleCheck, NamesAMisplacedAction) {
  EXPECT_EQ(Pair().swap(1, "1F0", "1B0").fault(),
            "rank 1, step 2: 1B0: its forward 1F0 comes later, at step 5");
  EXPECT_EQ(Pair().swap(0, "0F0", "0SEND_F0").fault(),
            "rank 0, step 1: 0SEND_F0: what it sends is made by 0F0 comes later, at step 2");
  EXPECT_EQ(Pair().swap(1, "1RECV_F0", "1F0").fault(),
            "rank 1, step 1: 1F0: its input by 1RECV_F0 comes later, at step 2");
  EXPECT_EQ(Pair().swap(1, "1B1", "1REDUCE_GRAD").fault(),
            "rank 1, step 7: 1REDUCE_GRAD: 1B1 comes later, at step 9");
  EXPECT_EQ(Pair().split(1, "1B0").insert(1, 5, {Action::backward_weight, 1, 0}).fault(),
            "rank 1, step 5: 1W0: the gradient of the input 1I0 comes later, at step 6");
}

TEST(ScheduleCheck, NamesUnknownStagesAndMicrobatches) {
  EXPECT_EQ(Pair().append(0, {Action::forward, 2, 0}).fault(),
            "rank 0, step 11: 2F0: there is no such stage; the stages are 0 to 1");
  EXPECT_EQ(Pair().append(0, {Action::forward, 0, 2}).fault(),
            "rank 0, step 11: 0F2: there is no such microbatch; they are 0 to 1");
  EXPECT_EQ(Pair().append(0, {Action::forward, 1, 0}).fault(),
            "rank 0, step 11: 1F0: stage 1 is not on this rank, it is on rank 1");
  EXPECT_EQ(Pair().append(0, {Action::receive_forward, 0, 0}).fault(),
            "rank 0, step 11: 0RECV_F0: stage 0 has no neighbour there to receive from");
  const ScheduleTable alone = {{{Action::forward, 0, 0}, {Action::send_forward, 0, 0}}};
  EXPECT_EQ(table_error(alone, {0, 0}, 1),
            "rank 0, step 1: 0SEND_F0: the stages 0 and 1 are both on this rank, so that nothing is sent");
  EXPECT_EQ(table_error(alone, {0, 3}, 1),
            "rank 3, step 0: 1F0: the table has no row for this rank; it has 1");
}

TEST(ScheduleCheck, NamesCrossedTransfers) {
  EXPECT_EQ(Pair().swap(0, "0SEND_F0", "0SEND_F1").swap(0, "0SEND_F1", "0F1").fault(),
            "rank 0, step 3: 0SEND_F1: crossed transfers between two ranks: rank 0 does 0SEND_F1 at step 3 "
            "while rank 1 does 1RECV_F0 at step 1; both ranks must see one order");
  EXPECT_EQ(Pair().swap(1, "1RECV_F0", "1RECV_F1").swap(1, "1RECV_F0", "1F0").fault(),
            "rank 0, step 2: 0SEND_F0: crossed transfers between two ranks: rank 0 does 0SEND_F0 at step 2 "
            "while rank 1 does 1RECV_F1 at step 1; both ranks must see one order");
}

TEST(ScheduleCheck, NamesADeadlockOfComputations) {
  // Rank 0 waits for the backward of microbatch 0 before it sends microbatch 1; rank 1 waits for microbatch 1
  // first.
  const ScheduleTable table = {
      {{Action::forward, 0, 0}, {Action::backward, 0, 0}, {Action::forward, 0, 1}, {Action::backward, 0, 1}},
      {{Action::forward, 1, 0}, {Action::forward, 1, 1}, {Action::backward, 1, 0}, {Action::backward, 1, 1}}};
  EXPECT_EQ(table_error(table, {0, 1}, 2),
            "rank 0, step 1: 0B0: deadlock: rank 0 at 0B0 (step 1) waits for rank 1, rank 1 at 1F1 (step 1) "
            "waits for rank 0");
  EXPECT_EQ(tests::thrown_by([&] {
              lower(table, std::vector<int>{0, 1});
            }),
            "error[input] schedule: deadlock: every rank waits for another: rank 0 at 0B0, rank 1 at 1F1\n"
            "  hint: order each rank's actions so that what one waits for comes earlier on its neighbour");
}

TEST(ScheduleCheck, NamesADeadlockOfTransfersInARing) {
  // Three ranks: each pair has one order of transfers, but all three wait in a cycle.
  const tests::Planned planned = tests::by_stages("loop", {0, 1, 2, 0, 1, 2}, 3, 1);
  ScheduleTable table = lower(planned.table, planned.rank_of_stage);
  for (auto& row : table)
    std::erase_if(row, [](const Action& action) { return action.kind >= Action::unshard; });
  const auto move_to_front = [&](int rank, Action wanted) {
    auto& row = table[rank];
    const auto at = std::find(row.begin(), row.end(), wanted);
    ASSERT_NE(at, row.end());
    std::rotate(row.begin(), at, at + 1);
  };
  move_to_front(0, {Action::receive_forward, 3, 0});
  EXPECT_EQ(table_error(table, planned.rank_of_stage, 1),
            "rank 0, step 0: 3RECV_F0: deadlock: rank 0 at 3RECV_F0 (step 0) waits for rank 2, rank 2 at "
            "2RECV_F0 (step 0) waits for rank 1, rank 1 at 1RECV_F0 (step 0) waits for rank 0");
}

TEST(ScheduleCheck, AcceptsOnlyForwardsInAnEvaluation) {
  const tests::Planned planned = tests::fill_and_drain(1, 1);
  EXPECT_EQ(table_error(planned.table, {0}, 1, Purpose::evaluation),
            "rank 0, step 1: 0B0: an evaluation runs forwards alone");
}

TEST(ScheduleCheck, ThrowsWithItsPlace) {
  EXPECT_EQ(tests::thrown_by([] { schedule::check({{}}, std::vector<int>{0}, 1, "table.csv"); }),
            "error[input] table.csv: rank 0, step 0: 0F0: it is missing: the row ends without it");
}

TEST(ScheduleSingle, RunsMicrobatchesInSequence) {
  const auto single = schedule::make_single();
  EXPECT_THAT(tests::rows_of(single->plan(1, 1, 3)), testing::ElementsAre("0F0 0B0 0F1 0B1 0F2 0B2"));
  EXPECT_THAT(tests::thrown_by([&] { single->plan(2, 2, 3); }),
              testing::HasSubstr("the schedule 'single' is one stage on one rank, and 2 stages on 2 ranks"));
}

}  // namespace
}  // namespace heddle
