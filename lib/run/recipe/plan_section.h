// The section `plan:` that `heddle plan --write` writes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "heddle/config/node.h"
#include "heddle/config/schema.h"

namespace heddle {

// What was predicted for the recipe. A run compares itself with it.
struct PlanSection {
  std::string device;  // the name of its machine file
  int64_t world_size = 0;
  double step_seconds = 0;  // 0: nothing is predicted
  double peak_bytes = 0;    // of the fullest rank
};

namespace recipe {

std::vector<FieldInfo> plan_fields();
// The section of a whole recipe; the defaults where it has none. Throws Error{config}.
PlanSection read_plan(const Node& root);

}  // namespace recipe
}  // namespace heddle
