// Whether a run has the base model and the teacher of the checkpoint that it resumes from.
#pragma once

#include <string>
#include <vector>

#include "lib/run/spec/run_spec.h"

namespace heddle {

// Throws Error{config} where the base model or a teacher has other weights than in the run that saved the
// checkpoint, unless checkpoint.accept_other_base is set; then, and where the checkpoint does not say which
// weights these were, it adds a warning.
void check_bases(const RunSpec& run, const Resume& resume, std::vector<std::string>& warnings);

}  // namespace heddle
