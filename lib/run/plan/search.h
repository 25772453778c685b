// Searches layouts of a run that fit a machine's memory, and predicts their step times.
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
  Machines machines;          // with their ranks, if several
  double memory_share = 0.9;  // share of device memory for tensors
  int64_t row_length = 0;     // 0: that of the recipe's data
  double seconds = 20;        // no dry step starts after this time
  std::vector<std::pair<std::string, std::string>> fixed = {};
  std::vector<std::string> allowed = {};  // values of Layout::precision besides the recipe's own
};

struct PlannedLayout {
  Layout layout;
  Node recipe = {};  // with the layout
  StepCost cost = {};
  bool fits = false;
  double tokens_per_second() const { return cost.tokens / cost.time.seconds; }
};

// The fastest layout on another number of ranks, with the same global batch.
struct ScaledLayout {
  int world = 1;
  double tokens_per_second = 0;
};

struct FoundLayouts {
  std::vector<std::string> devices;  // of each kind
  int world = 1;
  int64_t row_length = 0, global_batch = 0;
  int64_t recipe_row_length = 0;           // that of the recipe's data; 0: unknown
  std::vector<double> memory;              // bytes for tensors on a device of each kind; 0: unknown
  std::vector<PlannedLayout> fitting;      // fastest first
  std::vector<PlannedLayout> too_large;    // least memory first
  std::vector<ScaledLayout> scaling;       // of the first layout, where its values allow the number of ranks
  bool is_complete = false;                // the time sufficed for every promising layout
  int64_t layouts = 0;                     // layouts that divide the world, the batch and the layers
  int64_t bounded = 0;                     // of these, too large by parameters and activations alone
  Layout smallest;                         // of these, the one with the least of both
  double smallest_bytes = 0;               // its parameters and activations
  std::map<std::string, int64_t> refused;  // refused by heddle's checks, by reason
  std::string device() const;              // "H100 and A100"
};

// Runs dry steps of the layouts that a coarse estimate ranks fastest, in that order, and corrects the
// estimate of similar layouts by the results. Every returned layout has passed preflight. Throws Error for a
// recipe whose model or row length is unknown.
FoundLayouts search_layouts(const PlanRequest& request, PluginRegistry& plugins);

// Details of a found layout.
struct LayoutDetails {
  StepCost cost;         // of the first microbatches, with timelines
  double optimizer = 0;  // bytes of optimizer state on the rank with the most
  // Returns the bytes at the peak of the rank with the most, by kind.
  std::map<std::string, double> memory() const;
};
// Returns the details of a layout that search_layouts() returned for the same request.
LayoutDetails details_of(const PlanRequest& request, PluginRegistry& plugins, const Layout& layout);

}  // namespace heddle
