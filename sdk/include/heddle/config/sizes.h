// The degrees of parallelism of one run, resolved against a world size.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "heddle/base/export.h"

namespace heddle {

struct Axis {
  std::string name;
  int size = 1;
  bool operator==(const Axis&) const = default;
};

// A second set of axes over the same ranks: the neighbouring axes `over` of the mesh, flattened and unfolded
// as `axes`. The view has the mesh's other axes unchanged.
struct View {
  std::string name;               // "expert"
  std::vector<std::string> over;  // outermost first; those that the mesh lacks are skipped
  std::vector<Axis> axes;         // outermost first
  bool operator==(const View&) const = default;
};

// Every degree is at least 1; dp = dp_replicate * dp_shard; ep_shard is 1 when ep is 1.
struct Sizes {
  int world = 1;
  int pp = 1, dp = 1, dp_replicate = 1, dp_shard = 1, cp = 1, tp = 1, ep = 1, ep_shard = 1;
  std::vector<Axis> more = {};  // axes of plugins, and the axes of the ranks left over in their views

  // The size of an axis by its name; for a joined one the product of its parts. Throws Error{mesh} on an
  // unknown name.
  HEDDLE_API int of(std::string_view axis) const;
};

}  // namespace heddle
