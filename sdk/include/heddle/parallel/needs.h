// What a plugin declares before any tensor exists; core checks it as data.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "heddle/config/axes.h"

namespace heddle {

// Why a strategy trains to other numbers than `single`, on purpose.
struct Approximation {
  double loss = 0;     // most by which the loss of a step may differ, relative
  std::string reason;  // "gradients are rounded to 8 bits before they are summed", for the header of a run
  // Fields as YAML with which it is exact, and then says so: "{bits: 32}". The kits train both. Empty: none.
  std::string exact = {};
};

struct Needs {
  std::vector<std::string> axes;  // a strategy's mesh, outermost first; a parallelizer's own axis
  // Those of `axes` that are in the mesh only if their size is above 1.
  std::vector<std::string> axes_when_used;
  std::vector<std::string>
      may_use;  // features of core that it supports: "selective_activation_checkpointing", ...
  std::vector<Refusal> refuses;  // in the order in which they are checked
  // Further checks of the sizes; a non-empty text refuses the run. May be empty.
  std::function<std::string(const Sizes&)> sizes_rule;

  // A parallelizer's: axes that the engine does not have, and their views.
  std::vector<AxisInfo> new_axes = {};
  std::vector<ViewInfo> new_views = {};
  // A parallelizer's: axes whose parallelizers act before this one. Otherwise parallelizers act in the order
  // of the table of axes.
  std::vector<std::string> after = {};
  // A strategy's, with the fields that it was made from; empty: it trains as `single` does.
  std::optional<Approximation> approximate = {};
};

}  // namespace heddle
