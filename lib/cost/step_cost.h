// What a step of a run takes of a device that need not be there: memory, operations, bytes sent, time.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "lib/cost/machine.h"
#include "lib/cost/rank_size.h"
#include "lib/cost/step_time.h"
#include "lib/cost/timeline.h"

namespace heddle {

// Collectives of one group of ranks in a step.
struct GroupTraffic {
  std::string group;  // the axis
  int ranks = 1;
  int64_t calls = 0;
  double bytes = 0;
};

// Of the rank of the pipeline stage that fills most of its device's memory; `time` is of the whole step.
struct StepCost {
  std::string device;        // "H100", or "cpu"
  double device_memory = 0;  // bytes; 0: not known
  int stage = 0, stages = 1;
  int64_t row_length = 0;
  int64_t passes = 0;                // of a step through the model; without a pipeline a pass is a microbatch
  int64_t microbatches_of_pass = 1;  // in a pipeline
  double peak = 0;                   // bytes at most in a step, of tensors
  double before = 0;    // of these, held before it begins: parameters, the optimizer's state, buffers
  double products = 0;  // operations of products of matrices and of attention
  double moved = 0;     // bytes that all operators read and write
  // The sum over operators of the longer of computing and moving, at the device's peaks; 0: not known.
  double seconds = 0;
  std::vector<GroupTraffic> traffic;
  StepTime time;
  std::vector<double> stage_seconds;    // of a microbatch on each stage of a pipeline, forward and backward
  std::vector<RankTimeline> timelines;  // of each kind of stage, where they were asked for
  double tokens = 0;                    // of a step, on all ranks

  bool fits() const { return device_memory == 0 || peak <= device_memory; }
  double filled() const { return device_memory == 0 ? peak : peak / device_memory; }
};

// How much of a step is recorded. The rest of its time is taken from the passes and microbatches that were;
// operations and traffic are then of these alone.
struct Recorded {
  int64_t passes = std::numeric_limits<int64_t>::max();
  bool all_microbatches = true;  // false: as many as keep as many alive as all would
  bool with_timelines = false;
};

// One step of a rank of each kind of pipeline stage on meta tensors (engine::dry_step), with rows of
// `row_length` tokens. Where the ranks are on machines of several kinds, the stages of a pipeline take the
// time of their own machine, and other ranks wait for the slowest. Throws what the step throws.
StepCost step_cost(const StepPlan& plan, PluginRegistry& plugins, int64_t row_length,
                   const Machines& machines, const Recorded& recorded = {});

std::string to_text(const StepCost& cost);
std::string to_json(const StepCost& cost);

}  // namespace heddle
