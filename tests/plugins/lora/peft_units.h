// A section peft, and units that it has changed.
#pragma once

#include <string>
#include <vector>

#include "heddle/model/unit.h"
#include "heddle/plugin/transform.h"
#include "lib/run/recipe/recipe.h"

namespace heddle::tests {

// The recipe "peft: SECTION" with its plugins' sections read. Throws what is wrong with it.
Recipe read_peft(const std::string& section);

// The units of a model on meta, from the keys of its config.json.
Units units_of(const std::string& keys);

// Applies the section's transforms.
Transformed adapt(Units& units, const std::string& section);

// The paths that get an adapter; or the error, alone.
std::vector<std::string> adapted(const std::string& keys, const std::string& section);

}  // namespace heddle::tests
