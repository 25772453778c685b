// A step of a pipeline as it was measured, and the same step as the simulator runs it with the measured
// times.
#pragma once

#include <span>
#include <vector>

#include "heddle/schedule/simulate.h"
#include "heddle/train/step.h"

namespace heddle {

struct MeasuredPipeline {
  // The computations as they ran, calls of the schedule one behind the other: their microbatches count on.
  ScheduleTable table;
  int microbatches = 0;  // of all calls
  // Seconds, [stage]: the mean of each kind of action, and the median time between the end of a computation
  // and the moment that a rank which waited for its result goes on.
  std::vector<schedule::Costs> costs;
  double length = 0;         // seconds from the first computation's start to the last one's end
  std::vector<double> idle;  // [rank of pp]: the share of `length` in which it computes nothing
  schedule::Simulation simulated;

  double mean_idle() const;
  double mean_simulated_idle() const;
};

// `ranks`: the recordings of one step, in the order of pp, of one clock. Throws Error{internal} where they
// are of no whole step.
MeasuredPipeline measure(std::span<const std::vector<RanAction>> ranks, std::span<const int> rank_of_stage);

}  // namespace heddle
