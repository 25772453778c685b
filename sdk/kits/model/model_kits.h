// The kits of families of models.
#pragma once

#include <filesystem>

#include "../attempt.h"
#include "heddle/plugin/offer.h"

namespace heddle::kits {

// The small model that `keys` and each model_type describe: its description, its forward and gradients on one
// rank, and trainings along every axis.
// `tables`: the keys of all models of the file.
void run_model_kits(const OfferedModel& offered, const std::vector<FieldInfo>& tables, const Node& keys,
                    const std::filesystem::path& file, Attempts& attempt);

}  // namespace heddle::kits
