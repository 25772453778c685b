// Sixteen running sums, in the widest registers of the processor.
#include "lib/train/optimizer/squares_cpu.h"

#include "core/base/widest.h"

namespace heddle::train {

HEDDLE_WIDEST double squares_cpu(const float* values, int64_t count) {
  constexpr int64_t kLanes = 16;
  double lanes[kLanes] = {};
  int64_t at = 0;
  for (; at + kLanes <= count; at += kLanes) {
    __builtin_prefetch(values + at + 1024);
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const double value = values[at + lane];
      lanes[lane] += value * value;
    }
  }
  for (; at < count; ++at) lanes[0] += static_cast<double>(values[at]) * values[at];
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

}  // namespace heddle::train
