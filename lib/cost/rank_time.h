// The time of one rank's step: its work and its collectives on the streams of a device.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "heddle/engine/engine.h"
#include "lib/cost/machine.h"

namespace heddle {

// The device waits for the host to launch its work.
inline constexpr const char* kHost = "launches of the host";

// Something that took time on a stream.
struct Busy {
  std::string stream;  // "compute", or the name of a group
  const char* name;    // of the operator or the collective
  const char* kind;    // as in kind_of(); of a collective "collectives"
  double begin = 0, end = 0;
};

struct MemoryPoint {
  double seconds = 0;
  int64_t bytes = 0;  // most since the point before
};

// One action of the pipeline's schedule, or the whole of a microbatch without one.
struct TimedAction {
  Action action{};
  int call = 0;
  double begin = 0, end = 0;
  std::map<std::string, double> waits;    // of these, by group
  std::map<std::string, double> by_kind;  // of these: work as in kind_of(), and kHost
  double seconds() const { return end - begin; }
};

// Other ranks are assumed to be at the same place of their step, and what a stage receives to be there.
struct RankTime {
  double seconds = 0;         // of all that was recorded
  double after_schedule = 0;  // of these, after the last action: sums of gradients, the norm, the update
  std::map<std::string, double> waits;    // by group: the device waited for a collective
  std::map<std::string, double> traffic;  // by group: its collectives, beside work or not
  std::map<std::string, double> by_kind;  // work as in kind_of(), and kHost
  std::vector<TimedAction> actions;
  double transfer = 0;         // the longest send to another stage
  std::vector<Busy> timeline;  // empty unless it was asked for, like the next
  std::vector<MemoryPoint> memory;
};

// Replays the record of a dry step: operators run one after another on one stream; a collective starts when
// what came before it on that stream is done, its group's stream is free and its links are free, and holds
// the first stream from where its result is waited for.
RankTime rank_time(const engine::DryStep& step, const MachineFile& machine, bool with_timeline = false);

}  // namespace heddle
