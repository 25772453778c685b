// Checks of context parallelism before the first step.
#pragma once

#include <cstdint>

#include "config.h"
#include "heddle/model/unit.h"

namespace heddle::context {

// Throws Error{config} if method.ulysses_ranks(cp) ranks cannot split a rank's heads.
void check_heads(int64_t heads, const Method& method, int cp);

// Checks the whole model for cp ranks, with heads split over tp. Throws Error{config} for an ulysses_size
// that does not divide cp, heads that do not divide, and foreign units.
void check_units(Units& units, const Method& method, int cp, int tp);

}  // namespace heddle::context
