// Generates sizes in order of their number of actions, and checks the table of each.
#include "schedule_shapes.h"

#include <algorithm>
#include <chrono>
#include <tuple>
#include <vector>

#include "core/schedule/check.h"
#include "heddle/schedule/simulate.h"
#include "lib/testing/whole_tensors.h"

namespace heddle::kits {
namespace {

constexpr size_t kShapes = 2048;
// KMostStages: of a rank, beyond the minimum.
constexpr int kMostRanks = 32, kMostMicrobatches = 64, kMostStages = 4;
constexpr std::chrono::seconds kPatience{20};

struct TableShape {
  int ranks, each, microbatches;

  // Sorts by the number of actions, because a small table is easy to read.
  auto order() const { return std::tuple(ranks * each * microbatches, ranks * each, ranks, microbatches); }
  std::string text() const {
    return std::to_string(ranks) + (ranks == 1 ? " rank, " : " ranks, ") + std::to_string(ranks * each) +
           (ranks * each == 1 ? " stage and " : " stages and ") + std::to_string(microbatches) +
           (microbatches == 1 ? " microbatch" : " microbatches");
  }
};

std::vector<TableShape> shapes_for(StagesPerRank takes) {
  std::vector<TableShape> shapes;
  const int most = std::min(takes.most, takes.least + kMostStages - 1);
  for (int ranks = 1; ranks <= kMostRanks; ++ranks)
    for (int each = takes.least; each <= most; ++each)
      for (int microbatches = 1; microbatches <= kMostMicrobatches; ++microbatches)
        shapes.push_back({ranks, each, microbatches});
  std::sort(shapes.begin(), shapes.end(),
            [](const TableShape& one, const TableShape& two) { return one.order() < two.order(); });
  shapes.resize(std::min(shapes.size(), kShapes));
  return shapes;
}

// Returns false if the schedule refuses the size. Throws for a wrong table.
bool plans(const IPipelineSchedule& made, const std::filesystem::path& file, const TableShape& shape) {
  const auto plan = [&] { return made.plan(shape.ranks, shape.ranks * shape.each, shape.microbatches); };
  const auto fails = [&](const std::string& what) { found(shape.text() + ": " + what); };
  ScheduleTable table;
  try {
    table = plan();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::plugin_failed) return false;
    fails(error.message() + (error.hint().empty() ? "" : "\n" + error.hint()));
  }
  if (table != plan()) fails("plan() returns two different tables");
  const auto placement = schedule::placement(made, shape.ranks, shape.ranks * shape.each, file.string());
  const ScheduleTable lowered = schedule::lower(table, placement);
  if (const auto fault = schedule::find_fault(lowered, placement, shape.microbatches))
    fails(fault->action + ": " + fault->text + "\n" + schedule::faulty_rows(lowered, *fault));
  return true;
}

}  // namespace

std::string plans_tables(const IPipelineSchedule& made, const std::filesystem::path& file) {
  int planned = 0, refused = 0;
  const auto end = std::chrono::steady_clock::now() + kPatience;
  for (const TableShape& shape : shapes_for(made.stages_per_rank())) {
    if (std::chrono::steady_clock::now() > end) break;
    ++(plans(made, file, shape) ? planned : refused);
  }
  if (planned == 0) found("it refuses every size");
  return std::to_string(planned) + " tables" +
         (refused == 0 ? "" : ", and refuses " + std::to_string(refused) + " sizes");
}

}  // namespace heddle::kits
