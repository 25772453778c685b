// Parameters whose first values are computed from the model's own as they are read.
#pragma once

#include <cstdint>
#include <vector>

#include "heddle/parallel/build.h"
#include "heddle/plugin/transform.h"

namespace heddle {

// `base` with the parameters of Transformed::derived: each is computed from what `base` reads of another one,
// or from that one's Init with the seed. Without such parameters it is `base`.
ParameterSource with_derived(ParameterSource base, const std::vector<Transformed>& changes, uint64_t seed);

}  // namespace heddle
