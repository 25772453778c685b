// A section peft, and units that it has changed.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "heddle/model/family.h"
#include "heddle/model/unit.h"
#include "heddle/plugin/transform.h"
#include "lib/run/recipe/recipe.h"

namespace heddle::tests {

// The recipe "peft: SECTION" with its plugins' sections read. Throws what is wrong with it.
Recipe read_peft(const std::string& section);

// A model from the keys of its config.json, and its units on meta.
std::shared_ptr<const ModelSpec> spec_of_keys(const std::string& keys);
Units units_of(const std::string& keys);

// Applies the section's transforms; spec: of the files of the units' model, or null.
Transformed adapt(Units& units, const std::string& section, const ModelSpec* spec = nullptr);

// The paths that get an A, of the model with these keys and its files; or the error, alone.
std::vector<std::string> adapted(const std::string& keys, const std::string& section);

}  // namespace heddle::tests
