// Runs of a small model through pipelines, the same model on one rank, and schedules of the tests' own.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "heddle/schedule/schedule.h"
#include "plugins/topologies.h"

namespace heddle::tests {

// Five layers, and sizes that divide by nothing.
Training single_model();

// The schedules of the plugin `pipeline`, for INSTANTIATE_TEST_SUITE_P.
inline constexpr const char* kEverySchedule[] = {"gpipe",
                                                 "1f1b",
                                                 "zb1p",
                                                 "zb2p",
                                                 "dfs",
                                                 "loopedbfs",
                                                 "interleaved1f1b",
                                                 "vmin",
                                                 "interleavedzerobubble",
                                                 "zbvzerobubble",
                                                 "vhalf",
                                                 "dualpipev",
                                                 "auto"};
inline constexpr auto name_of_schedule = [](const auto& info) { return "S" + std::string(info.param); };

// What it trains to on one rank.
const Outcome& alone();

// The same on `ranks` stages, by a schedule from build/plugins; "": the caller gives one.
Training pipeline(const std::string& schedule, int ranks, int microbatch_rows, int calls = 1);

std::unique_ptr<IPipelineSchedule> make_schedule(const std::string& name);

enum class Placement { loop, v };

// Stages of a rank, forwards in the order of the model and backwards in the reverse order; all microbatches
// at each (breadth first).
class BreadthFirst : public IPipelineSchedule {
 public:
  BreadthFirst(int stages_of_a_rank, Placement placement) : each_(stages_of_a_rank), placement_(placement) {}
  ScheduleTable plan(int ranks, int stages, int microbatches) const override;
  int rank_of(int stage, int ranks, int stages) const override;
  StagesPerRank stages_per_rank() const override { return {each_, each_}; }

 private:
  int each_;
  Placement placement_;
};

// One stage a rank, one forward and one backward in turn; the backward of the input is sent on before the
// weights' gradients, which a rank computes `lag` microbatches later (after ZB-H1 of Qi et al. 2024).
class LateWeights : public IPipelineSchedule {
 public:
  explicit LateWeights(int lag) : lag_(lag) {}
  ScheduleTable plan(int ranks, int stages, int microbatches) const override;
  int rank_of(int stage, int, int) const override { return stage; }

 private:
  int lag_;
};

template <class Schedule, class... Arguments>
std::function<std::unique_ptr<IPipelineSchedule>()> made(Arguments... arguments) {
  return [=] { return std::make_unique<Schedule>(arguments...); };
}

}  // namespace heddle::tests
