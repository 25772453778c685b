// The section peft, and units to which it was applied.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "heddle/model/family.h"
#include "heddle/model/unit.h"
#include "heddle/plugin/transform.h"
#include "lib/run/recipe/recipe.h"

namespace heddle::tests {

// Reads the recipe "peft: SECTION" with the sections of plugins. Throws the error of an invalid section.
Recipe read_peft(const std::string& section);

// Creates a model from the keys of its config.json, and its units on meta.
std::shared_ptr<const ModelSpec> spec_of_keys(const std::string& keys);
Units units_of(const std::string& keys);

// Applies the section's transforms. spec: the files of the units' model, or null.
Transformed adapt(Units& units, const std::string& section, const ModelSpec* spec = nullptr);

// Returns the paths that get an A, for the model with these keys and its files. If that fails, only the
// error.
std::vector<std::string> adapted(const std::string& keys, const std::string& section);

}  // namespace heddle::tests
