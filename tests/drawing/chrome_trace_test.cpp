// Chrome trace of a simulated schedule: fields that viewers require, and the simulator's times.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/schedule/tables.h"
#include "heddle/schedule/simulate.h"
#include "lib/drawing/chrome_trace.h"
#include "plugins/pipeline/schedules.h"

namespace heddle::schedule {
namespace {

using nlohmann::json;

constexpr int kTraceRanks = 4, kTraceMicrobatches = 6;

Drawing traced_drawing(bool lowered) {
  const pipeline::OneStage<pipeline::zb1p> zb1p;
  ScheduleTable table = zb1p.plan(kTraceRanks, kTraceRanks, kTraceMicrobatches);
  std::vector<int> placed = placement(zb1p, kTraceRanks, kTraceRanks, "test");
  if (lowered) table = lower(table, placed);
  return {"zb\"1p", std::move(table), std::move(placed), kTraceMicrobatches};
}

const std::vector<Costs> kTraceCosts(kTraceRanks, Costs{1.25, 3, 1.5, 1.25, 0.125});

std::multiset<std::string> computations(const std::vector<Action>& row) {
  std::multiset<std::string> names;
  for (const Action& action : row)
    if (computes(action.kind)) names.insert(name_of(action));
  return names;
}

TEST(ChromeTrace, HoldsEveryComputationAtItsTime) {
  for (const bool lowered : {false, true}) {
    const Drawing drawing = traced_drawing(lowered);
    const Simulation run = simulate(drawing.table, drawing.rank_of_stage, kTraceCosts);
    const json file = json::parse(to_chrome_trace(drawing, kTraceCosts));
    EXPECT_EQ(file["otherData"]["schedule"], "zb\"1p");
    for (int rank = 0; rank < kTraceRanks; ++rank) {
      std::multiset<std::string> names;
      double end = 0, waits = 0;
      for (const json& event : file["traceEvents"]) {
        if (event["ph"] != "X" || event["pid"] != rank) continue;
        EXPECT_NEAR(event["ts"].get<double>(), end, 1e-6);  // the events leave no gap
        end = event["ts"].get<double>() + event["dur"].get<double>();
        if (event["cat"] == "wait") waits += event["dur"].get<double>();
        if (event["cat"] == "compute") names.insert(event["name"].get<std::string>());
      }
      EXPECT_NEAR(end, 1000 * run.length, 1e-6);
      EXPECT_NEAR(waits, 1000 * run.length * run.idle[rank], 1e-6);
      EXPECT_EQ(names, computations(drawing.table[rank]));
    }
  }
}

TEST(ChromeTrace, DrawsAnArrowForEachTransferForwardInTime) {
  const Drawing drawing = traced_drawing(true);
  const json file = json::parse(to_chrome_trace(drawing, kTraceCosts));
  std::map<std::string, json> begins, ends;
  for (const json& event : file["traceEvents"]) {
    if (event["ph"] != "s" && event["ph"] != "f") continue;
    auto& side = event["ph"] == "s" ? begins : ends;
    EXPECT_TRUE(side.emplace(event["id"].get<std::string>(), event).second);
  }
  EXPECT_EQ(begins.size(), size_t{2 * (kTraceRanks - 1) * kTraceMicrobatches});
  ASSERT_EQ(begins.size(), ends.size());
  for (const auto& [id, begin] : begins) {
    const json& end = ends.at(id);
    EXPECT_EQ(std::abs(begin["pid"].get<int>() - end["pid"].get<int>()), 1) << id;
    EXPECT_GE(end["ts"].get<double>(), begin["ts"].get<double>() + 125) << id;
  }
}

}  // namespace
}  // namespace heddle::schedule
