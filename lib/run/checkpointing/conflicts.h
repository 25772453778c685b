// Finds checkpoints that a run would overwrite.
#pragma once

#include <cstdint>
#include <set>

#include "lib/run/spec/run_spec.h"

namespace heddle {

// A published checkpoint is never overwritten. Throws Error{config} that names the first checkpoint in the
// way: restore_from may name an older checkpoint, or the newest one may be damaged or hold another model.
// Returns the value of RunSpec::taken.
std::set<int64_t> taken_checkpoints(const RunSpec& run);

}  // namespace heddle
