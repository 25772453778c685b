// Schedules of the plugin `pipeline` that PyTorch 2.11 has too, compared with the tables that its
// constructors create.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>

#include "core/schedule/tables.h"
#include "heddle/base/error.h"
#include "heddle/schedule/simulate.h"
#include "plugins/pipeline/schedules.h"
#include "tests/thrown.h"

namespace heddle::pipeline {
namespace {

// Returns the rows in PyTorch's format, with an overlapped pair as one cell.
std::string text_of(const ScheduleTable& table) {
  std::string text;
  for (const auto& row : table) {
    if (&row != &table.front()) text += "\n";
    for (size_t at = 0; at < row.size(); ++at) {
      if (at > 0) text += " ";
      const std::string name = schedule::name_of(row[at]);
      if (!row[at].overlaps_next) {
        text += name;
        continue;
      }
      text += "(" + name + ";" + schedule::name_of(row[at + 1]) + ")OVERLAP_F_B";
      ++at;
    }
  }
  return text;
}

// FNV-1a, as make_schedules.py computes it.
std::string pytorch_hash_of(const ScheduleTable& table) {
  uint64_t value = 0xcbf29ce484222325;
  for (const unsigned char byte : text_of(table)) value = (value ^ byte) * 0x100000001b3;
  char out[17];
  std::snprintf(out, sizeof out, "%016llx", static_cast<unsigned long long>(value));
  return out;
}

struct Compared {
  int same = 0, refused = 0;
};

// Compares a line of several.txt: this plan for 1 to 32 microbatches.
void compare(const IPipelineSchedule& schedule, const std::string& name, std::istringstream& line,
             Compared& compared) {
  int ranks = 0, each = 0;
  line >> ranks >> each;
  const std::vector<int> placement = [&] {
    std::vector<int> rank_of_stage;
    for (int stage = 0; stage < ranks * each; ++stage)
      rank_of_stage.push_back(schedule.rank_of(stage, ranks, ranks * each));
    return rank_of_stage;
  }();
  for (int microbatches = 1; microbatches <= 32; ++microbatches) {
    SCOPED_TRACE(name + " " + std::to_string(ranks) + " ranks, " + std::to_string(each) + " each, " +
                 std::to_string(microbatches));
    std::string expected;
    ASSERT_TRUE(line >> expected);
    if (expected == "-") {
      EXPECT_THROW(schedule.plan(ranks, ranks * each, microbatches), Error);
      ++compared.refused;
      continue;
    }
    const ScheduleTable table = schedule.plan(ranks, ranks * each, microbatches);
    ASSERT_EQ(pytorch_hash_of(table), expected) << text_of(table);
    ASSERT_EQ(tests::table_error(table, placement, microbatches), "");
    const ScheduleTable lowered = schedule::lower(table, placement);
    ASSERT_EQ(tests::table_error(lowered, placement, microbatches), "");
    ASSERT_EQ(tests::late_receives(lowered, placement), 0);
    ++compared.same;
  }
}

TEST(PyTorchsSchedules, HaveItsTablesAndRefusals) {
  std::map<std::string, std::unique_ptr<IPipelineSchedule>> made;
  made["loopedbfs"] = std::make_unique<Looped<looped_bfs>>();
  made["interleaved1f1b"] = std::make_unique<Looped<interleaved_1f1b>>();
  made["interleavedzerobubble"] = std::make_unique<Looped<interleaved_zero_bubble>>();
  made["zbvzerobubble"] = std::make_unique<InAV<zbv_zero_bubble>>();
  made["dualpipev"] = std::make_unique<InAV<dual_pipe_v>>();
  std::ifstream golden(HEDDLE_SOURCE_DIR "/tests/golden/schedules/several.txt");
  std::map<std::string, Compared> compared;
  for (std::string text; std::getline(golden, text);) {
    std::istringstream line(text);
    std::string name;
    line >> name;
    compare(*made.at(name), name, line, compared[name]);
    if (testing::Test::HasFatalFailure()) return;
  }
  int all = 0;
  for (const auto& [name, count] : compared) all += count.same + count.refused;
  EXPECT_EQ(all, 5 * 8 * 4 * 32);
  EXPECT_EQ(compared["loopedbfs"].same, 8 * 4 * 32);
  EXPECT_EQ(compared["zbvzerobubble"].same, 8 * 32);
  for (const auto& [name, count] : compared) EXPECT_TRUE(name == "loopedbfs" || count.refused > 0) << name;
}

TEST(PyTorchsSchedules, ReportTheirRequirements) {
  EXPECT_EQ(
      tests::thrown_by([] {
        interleaved_1f1b({4, 8, 9});
      }),
      "error[config] schedule Interleaved 1F1B: Interleaved 1F1B requires the number of microbatches to "
      "be a multiple of the number of rounds (2), but got 9.\n"
      "  hint: the number of rounds is the number of microbatches divided by the number of ranks (4), "
      "rounded down; use a multiple of the number of ranks");
  EXPECT_EQ(tests::thrown_by([] {
              interleaved_zero_bubble({2, 4, 5});
            }),
            "error[config] schedule Zero bubble: Zero bubble requires the number of microbatches to be a "
            "multiple of the number of rounds (2), but got 5.\n"
            "  hint: the number of rounds is the number of microbatches divided by the number of ranks (2), "
            "rounded down; use a multiple of the number of ranks");
  EXPECT_EQ(tests::thrown_by([] {
              zbv_zero_bubble({4, 12, 9});
            }),
            "error[config] schedule ZBV: ZBV requires exactly 2 stages per rank, but got 3.\n"
            "  hint: change layers_per_stage so that every rank holds two stages");
  EXPECT_EQ(tests::thrown_by([] {
              dual_pipe_v({4, 8, 7});
            }),
            "error[config] schedule DualPipeV: DualPipeV requires at least as many microbatches as stages, "
            "but got 7 microbatches and 8 stages.\n"
            "  hint: use smaller microbatches or fewer ranks, or set pp_schedule: zbvzerobubble");
}

}  // namespace
}  // namespace heddle::pipeline
