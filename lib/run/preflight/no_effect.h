// What a recipe asks for and nothing would come of.
#pragma once

#include <cstdint>
#include <string>

#include "heddle/model/unit.h"
#include "lib/run/recipe/recipe.h"

namespace heddle {

// Throws Error{config} for an entry of param_group_overrides that no parameter is trained by: its pattern
// matches no name, frozen parameters only, or only those of entries before it. After freezing.
void check_groups(Units& units, const OptimizerSection& optimizer);

// Throws Error{config} for a global batch of more rows than an epoch has. packed: the samples that the rows
// are packs of; 0: each row is a sample.
void check_batch(const StepSection& steps, int64_t rows, int64_t packed = 0);

// A warning of val_every_steps without a validation set; "": none.
std::string no_validation_text(const Recipe& recipe);

}  // namespace heddle
