// What a rank's streams do in a predicted step and what its memory holds: for pictures and traces.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "heddle/engine/engine.h"
#include "heddle/schedule/simulate.h"
#include "lib/cost/rank_time.h"

namespace heddle {

struct RankTimeline {
  int rank = 0;  // of the pipeline
  double seconds = 0;
  std::vector<Busy> spans;
  std::vector<MemoryPoint> memory;            // in the order of time
  std::map<std::string, double> peak_memory;  // bytes by kind at the peak, as in peak_by_kind()
};

// What the bytes alive at the peak of a step hold: "parameters and optimizer", "gathered parameters",
// "activations" (kept from a forward for its backward), "gradients" (kept until the update), "buffers".
std::map<std::string, double> peak_by_kind(const engine::DryStep& step);

// Moves the actions of a pipeline's rank to where the schedule's simulation has them: `row` and `times` of
// this rank. What lies between two actions follows the first one.
void move_to_schedule(RankTimeline& timeline, const std::vector<TimedAction>& actions,
                      std::span<const Action> row, std::span<const schedule::TimeSpan> times);

}  // namespace heddle
