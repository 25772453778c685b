// The simulator's times, idle shares and peaks, compared with values computed by hand.
#include "heddle/schedule/simulate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/core/schedule/tables.h"
#include "tests/thrown.h"

namespace heddle {
namespace {

using schedule::simulate;
using schedule::Simulation;
using testing::ElementsAre;

TEST(ScheduleSimulate, EqualsTheFormulaForFillAndDrain) {
  // (m + p - 1) forwards and as many backwards: the bubble is (p - 1) / (m + p - 1).
  const tests::Planned planned = tests::fill_and_drain(4, 8);
  const Simulation run = simulate(planned.table, planned.rank_of_stage);
  EXPECT_DOUBLE_EQ(run.length, 11 * 3);
  for (const double idle : run.idle) EXPECT_DOUBLE_EQ(idle, 3.0 / 11);
  EXPECT_THAT(run.peak, ElementsAre(8, 8, 8, 8));
}

TEST(ScheduleSimulate, GivesEarlyBackwardTheSameBubbleAndASmallerPeak) {
  const tests::Planned planned = tests::early_backward(4, 8, tests::Backward::whole);
  const Simulation run = simulate(planned.table, planned.rank_of_stage);
  EXPECT_DOUBLE_EQ(run.length, 11 * 3);
  EXPECT_THAT(run.peak, ElementsAre(4, 3, 2, 1));
}

TEST(ScheduleSimulate, BoundsThePeakOfEarlyBackwards) {
  for (int ranks = 1; ranks <= 9; ++ranks)
    for (int microbatches = 1; microbatches <= 12; ++microbatches) {
      const auto peak =
          schedule::peak_alive(tests::early_backward(ranks, microbatches, tests::Backward::whole).table);
      for (int rank = 0; rank < ranks; ++rank)
        EXPECT_EQ(peak[rank], std::min(microbatches, ranks - rank)) << rank << " of " << ranks;
    }
}

TEST(ScheduleSimulate, StartsAndEndsOverlappedActionsTogether) {
  ScheduleTable table = {
      {{Action::forward, 0, 0},
       {Action::forward, 0, 1, /*overlaps_next=*/true},
       {Action::backward, 0, 0},
       {Action::backward, 0, 1}},
      {{Action::forward, 1, 0}, {Action::backward, 1, 0}, {Action::forward, 1, 1}, {Action::backward, 1, 1}}};
  const std::vector<int> placement = {0, 1};
  EXPECT_EQ(tests::table_error(table, placement, 2), "");
  const Simulation run = simulate(table, placement);
  EXPECT_EQ(run.times[0][1].start, 4);  // the backward's input arrives then
  EXPECT_EQ(run.times[0][2].end, 7);
  EXPECT_EQ(run.times[1][2].start, 7);
  EXPECT_EQ(run.length, 12);
  table[0][1].overlaps_next = false;
  EXPECT_EQ(simulate(table, placement).length, 9);
  // Here the pair waits for the result of its own forward.
  table[0][1].overlaps_next = true;
  std::swap(table[1][1], table[1][2]);
  EXPECT_EQ(tests::table_error(table, placement, 2),
            "rank 0, step 1: 0F1: deadlock: rank 0 at 0F1 (step 1) waits for rank 1, rank 1 at 1F1 (step 1) "
            "waits for rank 0");
}

TEST(ScheduleSimulate, FillsTheBubbleByASplitBackward) {
  const tests::Planned whole = tests::early_backward(4, 8, tests::Backward::whole);
  const tests::Planned split = tests::early_backward(4, 8, tests::Backward::weights_last);
  EXPECT_LT(simulate(split.table, split.rank_of_stage).length,
            simulate(whole.table, whole.rank_of_stage).length);
  EXPECT_THAT(schedule::peak_alive(split.table), ElementsAre(8, 8, 8, 8));  // all stay until W
}

TEST(ScheduleSimulate, DelaysOnlyActionsThatNeedATransfer) {
  const tests::Planned planned = tests::fill_and_drain(2, 1);
  const Simulation run = simulate(planned.table, planned.rank_of_stage, {1, 2, 1, 1, 0.5});
  EXPECT_DOUBLE_EQ(run.times[1][0].start, 1.5);  // 1F0
  EXPECT_DOUBLE_EQ(run.times[0][1].start, 5.0);  // 0B0
  EXPECT_DOUBLE_EQ(run.length, 7);
}

TEST(ScheduleSimulate, EqualsTheTimeOfTheComputeTableWhenLowered) {
  for (const tests::Planned& planned : tests::every_kind(4, 6)) {
    const schedule::Costs costs{1, 2, 1, 1, 0.25};
    const Simulation compute = simulate(planned.table, planned.rank_of_stage, costs);
    const Simulation lowered =
        simulate(schedule::lower(planned.table, planned.rank_of_stage), planned.rank_of_stage, costs);
    EXPECT_DOUBLE_EQ(lowered.length, compute.length) << planned.name;
    EXPECT_EQ(lowered.peak, compute.peak) << planned.name;
    for (size_t rank = 0; rank < compute.idle.size(); ++rank)
      EXPECT_DOUBLE_EQ(lowered.idle[rank], compute.idle[rank]) << planned.name;
  }
}

TEST(ScheduleSimulate, StartsATransferAtTheEndOfItsComputation) {
  const tests::Planned planned = tests::fill_and_drain(2, 1);
  const ScheduleTable table = schedule::lower(planned.table, planned.rank_of_stage);
  const Simulation run = simulate(table, planned.rank_of_stage, {1, 2, 1, 1, 0.5});
  EXPECT_DOUBLE_EQ(run.times[0][2].start, 1);  // 0SEND_F0
  EXPECT_DOUBLE_EQ(run.times[0][2].end, 1.5);
  EXPECT_DOUBLE_EQ(run.times[1][1].start, 1);    // 1RECV_F0
  EXPECT_DOUBLE_EQ(run.times[0][3].start, 4.5);  // 0RECV_B0, after 1B0
}

TEST(ScheduleSimulate, KeepsOneMicrobatchInAnEvaluation) {
  const tests::Planned planned = tests::fill_and_drain(3, 5);
  EXPECT_THAT(schedule::peak_alive(schedule::forward_wave(planned.rank_of_stage, 3, planned.microbatches)),
              ElementsAre(1, 1, 1));
}

TEST(ScheduleSimulate, RefusesATableThatCannotRun) {
  EXPECT_EQ(tests::thrown_by([] {
              simulate({{{Action::backward, 0, 0}}, {}}, std::vector<int>{0, 1});
            }),
            "error[internal] schedule: a table that cannot run was simulated\n"
            "  hint: check it with schedule::check first");
}

}  // namespace
}  // namespace heddle
