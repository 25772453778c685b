// List scheduling: rows of forwards and input gradients in a preferred order become a table for given times
// and memory.
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
  std::vector<Costs> costs;    // [stage]; transfer: between this stage and the next one
  std::vector<double> memory;  // [stage]: of one microbatch from its forward to its weights' gradients
  double limit = 0;            // of the memory of a rank
  // What may run before the first action of its row if that one cannot.
  bool backwards_overtake = true, forwards_overtake = false;
  double patience = 0;  // a rank waits for data up to this share of a W before it computes a W instead
};

// `order`: [rank], each F and I (or B, taken as I) of the rank's stages once. Every rank takes the first
// action of its row as soon as its input is there and its memory allows; weights' gradients (W) fill the
// waits, the oldest first, and free memory. Returns F, I and W; an empty table when the memory is too small
// for this order.
ScheduleTable list_schedule(const ScheduleTable& order, const ListRules& rules);

}  // namespace heddle::pipeline
