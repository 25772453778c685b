// Needs, the requirements that a plugin declares before any tensor exists and that core checks.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "heddle/config/axes.h"

namespace heddle {

// The declaration of a strategy whose results differ from `single` by design.
struct Approximation {
  double loss = 0;     // largest relative difference of the loss of a step
  std::string reason;  // "gradients are rounded to 8 bits before they are summed", for the header of a run
  // Fields as YAML with which the strategy is exact and has no Approximation: "{bits: 32}". The kits train
  // with both. Empty: there is no exact mode.
  std::string exact = {};
};

// The requirements of a strategy or a parallelizer.
struct Needs {
  std::vector<std::string> axes;  // for a strategy its mesh, outermost first; for a parallelizer its own axis
  // The members of `axes` that are in the mesh only if their size is above 1.
  std::vector<std::string> axes_when_used;
  std::vector<std::string> may_use;  // supported features of core: "selective_activation_checkpointing", ...
  std::vector<Refusal> refuses;      // in the order in which they are checked
  // A further check of the sizes. A non-empty text refuses the run. May be empty.
  std::function<std::string(const Sizes&)> sizes_rule;

  // For a parallelizer: axes that the engine does not have, and their views.
  std::vector<AxisInfo> new_axes = {};
  std::vector<ViewInfo> new_views = {};
  // For a parallelizer: axes whose parallelizers act before this one. Otherwise parallelizers act in the
  // order of the table of axes.
  std::vector<std::string> after = {};
  // For a strategy with the fields of its constructor. Empty: its results equal those of `single`.
  std::optional<Approximation> approximate = {};
};

}  // namespace heddle
