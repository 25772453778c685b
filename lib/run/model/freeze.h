// Which parameters of a model do not train.
#pragma once

#include "heddle/base/export.h"
#include "heddle/model/unit.h"
#include "lib/run/recipe/sections.h"

namespace heddle {

// Takes requires_grad off the parameters that the section names; a tied one in all its places. They get no
// gradient, no optimizer state and no reduction. Throws Error{config} for a pattern that matches no
// parameter, and when nothing is left to train.
HEDDLE_API void freeze(Units& units, const FreezeSection& section);

}  // namespace heddle
