// Predicted memory, operations, traffic and time of a step on a device that may be elsewhere.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "lib/cost/machine.h"
#include "lib/cost/rank_size.h"
#include "lib/cost/time/step_time.h"
#include "lib/cost/time/timeline.h"

namespace heddle {

// Collectives of one group of ranks in a step.
struct GroupTraffic {
  std::string group;  // mesh axis
  int ranks = 1;
  int64_t calls = 0;
  double bytes = 0;
};

// Cost of the rank whose pipeline stage fills the largest share of its device's memory; `time` is of the
// whole step.
struct StepCost {
  std::string device;        // "H100", or "cpu"
  double device_memory = 0;  // bytes; 0: unknown
  int stage = 0, stages = 1;
  int64_t row_length = 0;
  int64_t passes = 0;  // passes through the model per step; without a pipeline, a pass is a microbatch
  int64_t microbatches_of_pass = 1;  // in a pipeline
  int64_t recorded = 0;              // microbatches of which products, moved, seconds and traffic are sums
  double peak = 0;                   // peak bytes of tensors in a step
  double before = 0;                 // bytes held before the step: parameters, optimizer state, buffers
  double products = 0;               // FLOPs of matrix products and attention
  double moved = 0;                  // bytes that all operators read and write
  // Sum over operators of the longer of computing and moving bytes at the device's peaks; 0: unknown.
  double seconds = 0;
  std::vector<GroupTraffic> traffic;
  StepTime time;
  std::vector<double> stage_seconds;    // [stage of a pipeline]: forward and backward of a microbatch
  std::vector<RankTimeline> timelines;  // of one rank per kind of stage, if requested
  double tokens = 0;                    // per step, on all ranks
  int ranks = 1;
  double mfu = 0;  // model FLOPs by the peak of all devices, in percent; 0: unknown

  bool fits() const { return device_memory == 0 || peak <= device_memory; }
  double filled() const { return device_memory == 0 ? peak : peak / device_memory; }
};

// Amount of a step to record. Times of the rest are extrapolated; operations and traffic cover the recorded
// part only.
struct Recorded {
  int64_t passes = std::numeric_limits<int64_t>::max();
  bool all_microbatches = true;  // false: the smallest number with as many live microbatches as all of them
  bool with_timelines = false;
};

// Runs one step of a rank of each kind of pipeline stage on meta tensors (engine::dry_step), with rows of
// `row_length` tokens. If there are several machines, each stage of a pipeline takes the time of its own
// machine; without a pipeline, all ranks take the time of the slowest one. Throws the errors of the step.
StepCost step_cost(const StepPlan& plan, PluginRegistry& plugins, int64_t row_length,
                   const Machines& machines, const Recorded& recorded = {});

std::string to_text(const StepCost& cost);
// Returns "step_seconds", rates, limit and parts as fields of a JSON object, without its braces.
std::string time_json(const StepCost& cost);
std::string to_json(const StepCost& cost);

}  // namespace heddle
