// What a plugin says of itself before any tensor exists; core checks it as data.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "heddle/config/axes.h"

namespace heddle {

struct Refusal {
  std::string axis;  // an axis of config/axes.h: refused when its size is above 1
  std::string text;  // the message, "acme does not support tensor parallelism"
};

struct Needs {
  std::vector<std::string> axes;  // a strategy's mesh, outermost first; a parallelizer's own axis
  // Of `axes`, those that stand in the mesh only when their size is above 1.
  std::vector<std::string> axes_when_used;
  std::vector<std::string>
      may_use;                   // features of core it works with: "selective_activation_checkpointing", ...
  std::vector<Refusal> refuses;  // in the order in which they are checked
  // Further checks of the sizes; a text that is not empty refuses the run. May be empty.
  std::function<std::string(const Sizes&)> sizes_rule;

  // A parallelizer's: axes that the engine does not have, and the views in which they stand.
  std::vector<AxisInfo> new_axes = {};
  std::vector<ViewInfo> new_views = {};
  // A parallelizer's: axes whose parallelizers act before this one. Those that nothing orders act in the
  // order of the table of axes.
  std::vector<std::string> after = {};
};

}  // namespace heddle
