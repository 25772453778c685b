// The interface of a pipeline schedule: an order of work as pure data.
#pragma once

#include <cstdint>
#include <vector>

#include "heddle/base/export.h"

namespace heddle {

struct Action {
  enum Kind : uint8_t {
    forward,
    backward,
    backward_input,
    backward_weight,
    send_forward,
    receive_forward,
    send_backward,
    receive_backward,
    unshard,
    reshard,
    reduce_gradients
  } kind;
  int stage, microbatch;
  bool operator==(const Action&) const = default;
};

using ScheduleTable = std::vector<std::vector<Action>>;  // [rank][time]

class HEDDLE_API IPipelineSchedule {
 public:
  virtual ~IPipelineSchedule();
  virtual ScheduleTable plan(int ranks, int stages,
                             int microbatches) const = 0;  // compute only; core adds transfers
  virtual int rank_of(int stage, int ranks, int stages) const = 0;
};

}  // namespace heddle
