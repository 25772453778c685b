// Parameters filled from a sharded directory, saved by any topology: each rank reads only its shards.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/model/family.h"
#include "heddle/parallel/build.h"

namespace heddle::checkpoint {

// For parallel::build; ranks that are threads take turns. `finer`: a directory with more precise values of
// some parameters under "master.NAME", used if the dtype changes; or empty. The model may have alternative
// names of a parameter. Throws Error{input}.
HEDDLE_API ParameterSource sharded_source(const std::filesystem::path& directory,
                                          const std::filesystem::path& finer,
                                          std::shared_ptr<const ModelSpec> model = nullptr);

}  // namespace heddle::checkpoint
