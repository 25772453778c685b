// Recordings of one rank as trace events.
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

// An operator of LibTorch, as recorded by its profiler.
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

// Converts times of the steady clock to microseconds after an origin.
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

// Returns the events of the rank's process: steps with their parts, actions, waits before actions, waits for
// collectives and transfers inside them, arrows from sends to the actions that wait for them, and operations
// in flight; operators in lanes of their own. rank_of_stage: as in Pipeline. Called by the thread that runs
// steps.
std::string events_of_rank(const RankRecord& record, const DeviceMesh& mesh,
                           std::span<const int> rank_of_stage, TraceTime time);

// Returns "rank 3 (pp 1, dp_shard 0)", with the axes of size above 1.
std::string rank_name(const DeviceMesh& mesh);

}  // namespace heddle
