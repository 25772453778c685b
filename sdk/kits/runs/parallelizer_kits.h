// The kits of parallelizers: along each axis that one declares, a Llama of small sizes trains like the whole.
#pragma once

#include <filesystem>

#include "../attempt.h"
#include "heddle/plugin/offer.h"

namespace heddle::kits {

// With `ranks` ranks along the axis; `file` offers the parallelizer.
void run_parallelizer_kits(const OfferedParallelizer& offered, const std::filesystem::path& file, int ranks,
                           Attempts& attempt);

}  // namespace heddle::kits
