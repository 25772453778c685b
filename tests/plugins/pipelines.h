// Runs of a small model through pipelines, the same model on one rank, and schedules for tests.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "heddle/schedule/schedule.h"
#include "plugins/topologies.h"

namespace heddle::tests {

// Five layers, with sizes that have no common divisors.
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

// Returns the outcome of single_model() on one rank.
const Outcome& alone();

// Returns single_model() on `ranks` stages, with a schedule from build/plugins. "": the caller sets one.
Training pipeline(const std::string& schedule, int ranks, int microbatch_rows, int calls = 1);

std::unique_ptr<IPipelineSchedule> make_schedule(const std::string& name);

enum class Placement { loop, v };

// Several stages per rank, forwards in the order of the model and backwards in reverse. Each stage runs all
// microbatches before the next (breadth first).
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

// One stage per rank, alternating forwards and backwards. Input gradients are sent immediately, and weight
// gradients are computed `lag` microbatches later (modeled on ZB-H1 of Qi et al. 2024).
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
