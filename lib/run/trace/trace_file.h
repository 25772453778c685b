// What ranks tell each other of a trace, and the file that rank 0 makes of it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "heddle/mesh/rendezvous.h"
#include "lib/run/trace/rank_events.h"

namespace heddle {

// Nanoseconds of this rank's steady clock at the beginning of rank 0's first traced step (of the rendezvous,
// where there is none). Ranks of one machine share a clock; another machine's is set by a rendezvous, to some
// milliseconds. A collective.
int64_t common_origin(Rendezvous& rendezvous, const std::vector<TracedStep>& steps);

// The actions of one step; their times are counted from the trace's origin.
struct StepActions {
  int64_t step = 0;
  std::vector<RanAction> actions;
};
std::vector<StepActions> actions_of(const std::vector<TracedStep>& steps, TraceTime time);

// What one rank gives to rank 0.
struct RankPart {
  std::string events;
  std::vector<int> pipeline;  // the global ranks of its pipeline, in order
  std::vector<StepActions> steps;
};
std::string pack_rank(const RankPart& part);

struct TraceFile {
  std::string text;     // of the file
  std::string summary;  // for a person, one line or more
};

// parts: pack_rank() of all ranks, in their order. Of a pipeline of several ranks the first one is measured,
// and the file also has the simulation with the measured times.
TraceFile make_trace_file(std::span<const std::string> parts, std::span<const int> rank_of_stage,
                          const std::string& schedule);

}  // namespace heddle
