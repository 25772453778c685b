// What one rank recorded of some steps, as events of a trace.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "heddle/mesh/device_mesh.h"
#include "heddle/train/step.h"
#include "lib/drawing/chrome_trace.h"
#include "lib/transport/traced.h"

namespace heddle {

// An operator of LibTorch, as its profiler saw it.
struct RanOperator {
  std::string name;
  uint64_t thread = 0;
  RanAction::Time begin, end;
};

struct TracedStep {
  int64_t step = 0;  // from 0
  RanAction::Time begin, end;
  Recording recording;
};

// Microseconds of a trace: those of the steady clock after an origin.
class TraceTime {
 public:
  // origin: nanoseconds of this rank's clock.
  explicit TraceTime(int64_t origin = 0) : origin_(origin) {}
  double operator()(RanAction::Time time) const;

 private:
  int64_t origin_;
};

struct RankRecord {
  std::vector<TracedStep> steps;
  std::vector<TracedCall> calls;
  std::vector<RanOperator> operators;
};

// The rank's process: its steps with their parts, actions with the waiting before them as spans of their own,
// waits for collectives and transfers inside those, arrows from sends to what waits for them, and what is in
// flight; operators in lanes of their own. rank_of_stage: as in Pipeline. Called by the thread that runs
// steps.
std::string events_of_rank(const RankRecord& record, const DeviceMesh& mesh,
                           std::span<const int> rank_of_stage, TraceTime time);

// "rank 3 (pp 1, dp_shard 0)": the axes of more than one place.
std::string rank_name(const DeviceMesh& mesh);

}  // namespace heddle
