// A measured step of a pipeline, and its simulation with the measured times.
#pragma once

#include <span>
#include <vector>

#include "heddle/schedule/simulate.h"
#include "heddle/train/step.h"

namespace heddle {

struct MeasuredPipeline {
  // Computations in the order in which they ran. Calls of the schedule are concatenated, with consecutive
  // microbatch numbers.
  ScheduleTable table;
  int microbatches = 0;  // of all calls
  // Seconds per stage: mean time of each kind of action, and median transfer time from the end of a
  // computation until the waiting rank continues.
  std::vector<schedule::Costs> costs;
  double length = 0;         // seconds from the start of the first computation to the end of the last
  std::vector<double> idle;  // [rank of pp]: share of `length` without computation
  schedule::Simulation simulated;

  double mean_idle() const;
  double mean_simulated_idle() const;
};

// `ranks`: recordings of one step in the order of pp, with a common clock. Throws Error{internal} if they do
// not form a whole step.
MeasuredPipeline measure(std::span<const std::vector<RanAction>> ranks, std::span<const int> rank_of_stage);

}  // namespace heddle
