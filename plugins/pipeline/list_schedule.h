// List scheduling: converts preferred orders of forwards and input gradients to a table, for given times and
// memory.
#pragma once

#include <span>
#include <vector>

#include "heddle/schedule/schedule.h"
#include "heddle/schedule/simulate.h"

namespace heddle::pipeline {

using schedule::Costs;

struct ListRules {
  std::span<const int> rank_of_stage;
  int microbatches = 1;
  std::vector<Costs> costs;    // [stage]; transfer: from this stage to the next
  std::vector<double> memory;  // [stage]: per microbatch, from its forward to its weight gradients
  double limit = 0;            // memory limit of a rank
  // Kinds of actions that may run before the first action of a row while that action cannot start.
  bool backwards_overtake = true, forwards_overtake = false;
  double patience = 0;  // a rank waits for data up to this fraction of a W before it runs a W instead
};

// `order`: [rank], each F and I (or B, which counts as I) of the rank's stages once. Every rank runs the
// first action of its row as soon as its input has arrived and its memory suffices. Weight gradients (W) fill
// idle times, oldest first, and free memory. Returns F, I and W, or an empty table if the memory is too small
// for this order.
ScheduleTable list_schedule(const ScheduleTable& order, const ListRules& rules);

}  // namespace heddle::pipeline
