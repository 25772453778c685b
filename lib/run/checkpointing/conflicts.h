// Checkpoints that a run would save over, found before it takes a step.
#pragma once

#include <cstdint>
#include <set>

#include "lib/run/spec/run_spec.h"

namespace heddle {

// Nothing is ever saved over a published checkpoint, so a run whose schedule comes to one would lose the
// steps up to it. Throws Error{config} naming the first: after restore_from has named an older one, or where
// the newest is of another model, or damaged. Returns RunSpec::taken.
std::set<int64_t> taken_checkpoints(const RunSpec& run);

}  // namespace heddle
