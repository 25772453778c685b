// What context parallelism refuses before the first step.
#pragma once

#include <cstdint>

#include "config.h"
#include "heddle/model/unit.h"

namespace heddle::context {

// Throws Error{config} where a rank's number of heads cannot be dealt over method.ulysses_ranks(cp) ranks.
void check_heads(int64_t heads, const Method& method, int cp);

// The whole model over cp ranks, its heads split over tp. Throws Error{config} for an ulysses_size that does
// not divide cp, heads that do not divide and foreign units.
void check_units(Units& units, const Method& method, int cp, int tp);

}  // namespace heddle::context
