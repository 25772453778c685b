// What of a model's attention GPUs do not compute, before a rank starts.
#pragma once

#include <string>

#include "heddle/config/node.h"
#include "heddle/model/unit.h"
#include "lib/run/recipe/recipe.h"

namespace heddle {

// What of the model's attention over documents a GPU does not compute; empty: nothing.
std::string not_on_gpus(const Units& units);

// Mixed precision's dtype where the strategy has one, else the storage's.
bool computes_in_float32(const Node& strategy, at::ScalarType storage);

// attend() would refuse them at the first step. A window as wide as the longest row has no effect; a row
// whose length no section says may be as long as the model takes.
void refuse_windows(const Units& units, const Recipe& recipe, int64_t max_positions);

}  // namespace heddle
