// Table files: PyTorch's files are read, lowered as PyTorch lowers them, and written unchanged.
#include "heddle/schedule/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "heddle/schedule/simulate.h"
#include "tests/core/schedule/tables.h"
#include "tests/thrown.h"

namespace heddle {
namespace {

using schedule::read_table;
using testing::ElementsAre;
using testing::HasSubstr;
using tests::thrown_by;

std::string golden(const std::string& name) {
  return HEDDLE_SOURCE_DIR "/tests/golden/schedules/" + name;
}
std::string content_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class Written : public ::testing::Test {
 protected:
  std::string path_ = testing::TempDir() + "heddle_table_" +
                      testing::UnitTest::GetInstance()->current_test_info()->name() + ".csv";
  void write(const std::string& text) { std::ofstream(path_) << text; }
  // Returns the error of a file with this text, without the path.
  std::string refusal(const std::string& text) {
    write(text);
    std::string block = thrown_by([&] { read_table(path_, "run.yaml:3 distributed.pipeline"); });
    for (size_t at = block.find(path_); at != block.npos; at = block.find(path_))
      block.replace(at, path_.size(), "FILE");
    return block;
  }
  ~Written() override { std::filesystem::remove(path_); }
};
using TableFile = Written;

TEST_F(TableFile, QuotesTheBeginningOfALongCell) {
  const std::string said = refusal("0F0," + std::string(2'000'000, 'x'));
  EXPECT_EQ(said.substr(0, said.find('\n')), "error[input] FILE:1: rank 0, step 1: '" +
                                                 std::string(200, 'x') +
                                                 "... (2000000 bytes)' is not an action");
}

TEST_F(TableFile, LowersLikePyTorch) {
  for (const char* name : {"interleaved_zero_bubble", "zbv"}) {
    const auto compute = read_table(golden(std::string(name) + ".csv"), "test");
    const auto lowered = read_table(golden(std::string(name) + ".lowered.csv"), "test");
    EXPECT_FALSE(schedule::is_lowered(compute.table)) << name;
    EXPECT_TRUE(schedule::is_lowered(lowered.table)) << name;
    const ScheduleTable ours = schedule::lower(compute.table, compute.rank_of_stage);
    EXPECT_EQ(tests::rows_of(ours), tests::rows_of(lowered.table)) << name;
    EXPECT_EQ(schedule::to_csv(ours, compute.rank_of_stage),
              content_of(golden(std::string(name) + ".lowered.csv")))
        << name;
  }
}

// PyTorch posts these receives after their data is sent: the same actions in another order.
TEST_F(TableFile, LowersWithoutLateTransfers) {
  for (const char* name : {"interleaved", "dual_pipe_v"}) {
    const auto compute = read_table(golden(std::string(name) + ".csv"), "test");
    const auto theirs = read_table(golden(std::string(name) + ".lowered.csv"), "test");
    const ScheduleTable ours = schedule::lower(compute.table, compute.rank_of_stage);
    EXPECT_GT(tests::late_receives(theirs.table, compute.rank_of_stage), 0) << name;
    EXPECT_EQ(tests::late_receives(ours, compute.rank_of_stage), 0) << name;
    for (size_t rank = 0; rank < ours.size(); ++rank) {
      auto one = tests::rows_of(ours)[rank], two = tests::rows_of(theirs.table)[rank];
      EXPECT_EQ(one.size(), two.size()) << name;
    }
  }
}

TEST_F(TableFile, KnowsItsStagesAndMicrobatches) {
  const auto zbv = read_table(golden("zbv.csv"), "test");
  EXPECT_THAT(zbv.rank_of_stage, ElementsAre(0, 1, 2, 2, 1, 0));
  EXPECT_EQ(zbv.microbatches, 7);
}

TEST_F(TableFile, KeepsOverlappedActions) {
  const auto dual = read_table(golden("dual_pipe_v.csv"), "test");
  const auto& row = dual.table[0];
  const auto at = std::find(row.begin(), row.end(), Action{Action::forward, 0, 3, true});
  ASSERT_NE(at, row.end());
  EXPECT_EQ(*(at + 1), (Action{Action::backward, 3, 1}));
}

TEST_F(TableFile, RoundTrips) {
  for (const tests::Planned& planned : tests::every_kind(3, 5)) {
    write(schedule::to_csv(planned.table, planned.rank_of_stage));
    EXPECT_EQ(read_table(path_, "test").table, planned.table) << planned.name;
    const ScheduleTable lowered = schedule::lower(planned.table, planned.rank_of_stage);
    write(schedule::to_csv(lowered, planned.rank_of_stage));
    EXPECT_EQ(read_table(path_, "test").table, lowered) << planned.name;
  }
}

TEST_F(TableFile, HasAnEmptyCellForAnIdleRank) {
  const tests::Planned planned = tests::fill_and_drain(2, 2);
  EXPECT_EQ(schedule::to_csv(planned.table, planned.rank_of_stage), "0F0,0F1,,,0B0,0B1\n,1F0,1F1,1B0,1B1\n");
}

TEST_F(TableFile, AcceptsSpacesAndLineEndsOfOtherSystems) {
  write("0F0, 0B0\r\n\r\n");
  EXPECT_THAT(tests::rows_of(read_table(path_, "test").table), ElementsAre("0F0 0B0"));
}

TEST_F(TableFile, IsNamedWhenMissing) {
  EXPECT_EQ(thrown_by([] { read_table("/no/such.csv", "run.yaml:3 distributed.pipeline.pp_schedule_csv"); }),
            "error[input] run.yaml:3 distributed.pipeline.pp_schedule_csv: The specified path /no/such.csv "
            "does not exist or is not a file.\n  hint: give the path of a schedule's table; a relative path "
            "starts at the working directory");
  EXPECT_THAT(thrown_by([] { read_table("/", "here"); }),
              HasSubstr("The specified path / does not exist or is not a file."));
}

TEST_F(TableFile, NamesLineAndCellWhenUnreadable) {
  const std::string hint =
      "\n  hint: write STAGE, KIND and MICROBATCH, such as 2F0; kinds are F B I W SEND_F RECV_F SEND_B "
      "RECV_B, and UNSHARD RESHARD REDUCE_GRAD without a microbatch";
  EXPECT_EQ(refusal("0F0,0B0\n1F0,,1X0\n"),
            "error[input] FILE:2: rank 1, step 1: '1X0' is not an action" + hint);
  for (const char* bad : {"F0", "0F", "0F-1", "0F0x", "0SEND_X0", "0UNSHARD0", "99999999999F0", "(0F0;0B0)",
                          "(0F0)OVERLAP_F_B"})
    EXPECT_THAT(refusal(bad), HasSubstr("' is not an action")) << bad;
  EXPECT_EQ(refusal(""), "error[input] FILE: the table holds no action\n  hint: write a row for each rank");
  EXPECT_EQ(refusal("2F0,2B0"), "error[input] FILE: no rank holds stage 0; the highest stage is 2");
}

TEST_F(TableFile, NamesRankStepAndActionWhenWrong) {
  EXPECT_EQ(refusal("0F0,0F1,,,0B0,0B1\n,1F0,1F1,1B0\n"),
            "error[input] FILE:2: rank 1, step 3: 1B1: it is missing: the row ends without it");
  EXPECT_EQ(refusal("0F0,0F1,,,0B0,0B1\n,1F0,1B0,1F1,1F1,1B1\n"),
            "error[input] FILE:2: rank 1, step 3: 1F1: it is repeated: it is at step 2 already");
  EXPECT_EQ(refusal("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n"),
            "error[input] FILE:1: rank 0, step 1: 0B0: deadlock: rank 0 at 0B0 (step 1) waits for "
            "rank 1, rank 1 at 1F1 (step 1) waits for rank 0");
  EXPECT_EQ(refusal("0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
                    "1RECV_F1,1RECV_F0,1F0,1F1,1B0,1SEND_B0,1B1,1SEND_B1\n"),
            "error[input] FILE:1: rank 0, step 1: 0SEND_F0: crossed transfers between two ranks: rank "
            "0 does 0SEND_F0 at step 1 while rank 1 does 1RECV_F1 at step 0; both ranks must see one order");
}

TEST_F(TableFile, IsAScheduleForItsOwnSizes) {
  const auto made = schedule::make_from_table(read_table(golden("zbv.csv"), "test"));
  EXPECT_EQ(made->plan(3, 6, 7).size(), 3u);
  EXPECT_EQ(made->rank_of(5, 3, 6), 0);
  EXPECT_EQ(made->stages_per_rank().least, 2);
  EXPECT_EQ(made->stages_per_rank().most, 2);
  EXPECT_EQ(thrown_by([&] { made->plan(3, 6, 8); }),
            "error[input] " + golden("zbv.csv") +
                ": the table is for 7 microbatches, and the run has 8\n  hint: give a table of the run's "
                "size, or a schedule by name in pp_schedule");
  EXPECT_THAT(thrown_by([&] { made->plan(2, 4, 7); }),
              HasSubstr("the table is for 3 ranks, and the run has 2"));
  EXPECT_THAT(thrown_by([&] { made->rank_of(0, 3, 3); }),
              HasSubstr("the table is for 6 stages, and the run has 3"));
}

TEST_F(TableFile, IsRefusedForARunWithTransfers) {
  EXPECT_EQ(thrown_by([] { schedule::make_from_table(read_table(golden("zbv.lowered.csv"), "test")); }),
            "error[input] " + golden("zbv.lowered.csv") +
                ": the table holds transfers already, and a run adds them itself\n  hint: give the compute "
                "table: F, B, I and W alone");
}

TEST_F(TableFile, IsRefusedForARunWithUnequalRanks) {
  write("0F0,1F0,,,1B0,0B0\n,,2F0,2B0\n");
  EXPECT_THAT(thrown_by([&] { schedule::make_from_table(read_table(path_, "test")); }),
              HasSubstr(":1: rank 0 holds another number of stages than the others"));
}

}  // namespace
}  // namespace heddle
