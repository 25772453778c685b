// Searches layouts of a run: which fit a machine's memory, and how long a step takes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "heddle/plugin/registry.h"
#include "lib/cost/machine.h"
#include "lib/cost/step_cost.h"
#include "lib/run/plan/layout.h"

namespace heddle {

struct PlanRequest {
  Node recipe;
  int world = 1;
  Machines machines;
  double memory_share = 0.9;  // of the device's memory that tensors may take
  int64_t row_length = 0;     // 0: of the recipe's data
  double seconds = 20;        // after which no further dry step begins
  std::vector<std::pair<std::string, std::string>> fixed;
};

struct PlannedLayout {
  Layout layout;
  StepCost cost = {};
  double mfu = 0;  // share of the peak; 0: not known
  bool fits = false;
  double tokens_per_second() const { return cost.tokens / cost.time.seconds; }
};

struct FoundLayouts {
  std::string device;
  int world = 1;
  int64_t row_length = 0, global_batch = 0;
  double memory = 0;                       // bytes that tensors may take, of the largest device; 0: not known
  std::vector<PlannedLayout> fitting;      // fastest first
  std::vector<PlannedLayout> too_large;    // least memory first
  int64_t layouts = 0;                     // that divide the world, the batch and the layers
  int64_t bounded = 0;                     // of these, too large by parameters and activations alone
  std::map<std::string, int64_t> refused;  // by heddle's own checks, by their reason
};

// Takes dry steps of the layouts that a coarse estimate says are fastest, in its order, and corrects the
// estimate of like layouts by what was found. Every layout that it returns has passed preflight. Throws Error
// for a recipe whose model or length of rows is not known.
FoundLayouts search_layouts(const PlanRequest& request, PluginRegistry& plugins);

// One of these layouts in detail.
struct LayoutDetails {
  Node recipe;           // with the layout
  StepCost cost;         // with timelines
  double optimizer = 0;  // bytes of its state on the rank that holds most
};
LayoutDetails details_of(const PlanRequest& request, PluginRegistry& plugins, const PlannedLayout& layout);

}  // namespace heddle
