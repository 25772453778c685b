// Time of one rank's step: its operators and collectives on the streams of a device.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "heddle/engine/engine.h"
#include "lib/cost/machine.h"

namespace heddle {

// The part of a step in which the device waits for the host to launch its kernels.
inline constexpr const char* kHost = "launches of the host";

// A busy interval of a stream.
struct Busy {
  std::string stream;  // "compute", or the name of a group
  const char* name;    // name of the operator or the collective
  const char* kind;    // kind_of() of an operator, "collectives" of a collective
  double begin = 0, end = 0;
};

// Allocated memory at a time of a step.
struct MemoryPoint {
  double seconds = 0;
  int64_t bytes = 0;  // maximum since the previous point
};

// An action of the pipeline schedule; without a pipeline, a whole microbatch.
struct TimedAction {
  Action action{};
  int call = 0;
  double begin = 0, end = 0;
  std::map<std::string, double> waits;    // waits for collectives, by group
  std::map<std::string, double> by_kind;  // work by kind_of(), and kHost
  double seconds() const { return end - begin; }
};

// Assumes that the other ranks are at the same point of their step, and that received tensors have arrived.
struct RankTime {
  double seconds = 0;  // of everything recorded
  // part of `seconds` after the last action: gradient reductions, the norm, the update
  double after_schedule = 0;
  std::map<std::string, double> waits;    // by group: time in which the device waited for a collective
  std::map<std::string, double> traffic;  // by group: duration of its collectives, overlapped or not
  std::map<std::string, double> by_kind;  // work by kind_of(), and kHost
  std::vector<TimedAction> actions;
  double transfer = 0;              // longest send to another stage
  std::vector<Busy> timeline;       // filled if requested
  std::vector<MemoryPoint> memory;  // filled if requested, in the order of time
};

// Replays the record of a dry step. Operators run one after another on one stream. A collective starts when
// the earlier operators of that stream are done and its group's stream and links are free; the first stream
// waits for it where its result is used.
RankTime rank_time(const engine::DryStep& step, const MachineFile& machine, bool with_timeline = false);

}  // namespace heddle
