// The kits of parallelizers: along each axis of a parallelizer, a small Llama trains like the whole model.
#pragma once

#include <filesystem>

#include "../attempt.h"
#include "heddle/plugin/offer.h"

namespace heddle::kits {

// Runs the kits with `ranks` ranks along the axis. file: the file that offers the parallelizer.
void run_parallelizer_kits(const OfferedParallelizer& offered, const std::filesystem::path& file, int ranks,
                           Attempts& attempt);

}  // namespace heddle::kits
