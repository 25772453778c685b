// Streams and memory of a rank during a predicted step, for pictures and traces.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "heddle/engine/engine.h"
#include "heddle/schedule/simulate.h"
#include "lib/cost/time/rank_time.h"

namespace heddle {

// Busy intervals and memory of one rank.
struct RankTimeline {
  int rank = 0;  // rank of the pipeline
  double seconds = 0;
  std::vector<Busy> spans;
  std::vector<MemoryPoint> memory;            // in the order of time
  std::map<std::string, double> peak_memory;  // peak_by_kind()
};

// Returns the allocated bytes at the peak of a step by kind: "parameters and optimizer", "gathered
// parameters", "activations" (kept from the forward pass for the backward pass), "gradients" (kept until the
// update) and "buffers".
std::map<std::string, double> peak_by_kind(const engine::DryStep& step);

// Moves the actions of a rank to their times in the simulation of the schedule. row, times: of this rank.
// Work between two actions directly follows the first one.
void move_to_schedule(RankTimeline& timeline, const std::vector<TimedAction>& actions,
                      std::span<const Action> row, std::span<const schedule::TimeSpan> times);

}  // namespace heddle
