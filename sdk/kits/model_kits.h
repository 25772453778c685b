// The kits of families of models.
#pragma once

#include "attempt.h"
#include "heddle/plugin/offer.h"

namespace heddle::kits {

// The model that `keys` and each model_type describe, on meta.
void run_model_kits(const OfferedModel& offered, const Node& keys, Attempts& attempt);

}  // namespace heddle::kits
