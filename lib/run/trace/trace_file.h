// Exchange of trace data between ranks, and the file that rank 0 builds from it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "heddle/mesh/rendezvous.h"
#include "lib/run/trace/rank_events.h"

namespace heddle {

// Returns this rank's steady clock, in nanoseconds, at the start of rank 0's first traced step (without one,
// at the rendezvous). Ranks of a machine share a clock; the clocks of other machines are aligned by a
// rendezvous, to some milliseconds. A collective.
int64_t common_origin(Rendezvous& rendezvous, const std::vector<TracedStep>& steps);

// Actions of one step; times are relative to the trace's origin.
struct StepActions {
  int64_t step = 0;
  std::vector<RanAction> actions;
};
std::vector<StepActions> actions_of(const std::vector<TracedStep>& steps, TraceTime time);

// Data that a rank sends to rank 0.
struct RankPart {
  std::string events;
  std::vector<int> pipeline;  // global ranks of its pipeline, in order
  std::vector<StepActions> steps;
};
std::string pack_rank(const RankPart& part);

struct TraceFile {
  std::string text;     // contents of the file
  std::string summary;  // for the terminal, one line or more
};

// parts: pack_rank() of all ranks, in rank order. The first pipeline of several ranks is measured, and the
// file also contains its simulation with the measured times.
TraceFile make_trace_file(std::span<const std::string> parts, std::span<const int> rank_of_stage,
                          const std::string& schedule);

}  // namespace heddle
