// Needs, the requirements that a plugin declares before any tensor exists and that core checks.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "heddle/config/axes.h"

namespace heddle {

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
};

}  // namespace heddle
