// The kits of families of models.
#pragma once

#include "attempt.h"
#include "heddle/plugin/offer.h"

namespace heddle::testing {

// The model that each model_type's defaults describe, on meta.
void run_model_kits(const OfferedModel& offered, Attempts& attempt);

}  // namespace heddle::testing
