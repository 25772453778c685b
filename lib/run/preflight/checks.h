// What a recipe's sections allow of the model and of each other.
#pragma once

#include <cstdint>

#include "heddle/model/family.h"
#include "heddle/schedule/schedule.h"
#include "lib/run/recipe/recipe.h"

namespace heddle {

// Throws Error{config} where rows are longer than the model's positions.
void check_length(const DatasetSection& section, const ModelFacts& model);

// Throws Error{config}: dropping the last rows leaves no validation sample.
[[noreturn]] void refuse_none_left(const DatasetSection& section, int64_t samples);

bool overlaps(const ScheduleTable& table);

// Throws Error{config} where a checkpoint could not be published by renaming it, which a file system does
// only within itself.
void check_staging(const CheckpointSection& section);

}  // namespace heddle
