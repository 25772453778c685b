// The errors of ranks that do not come: one wording for every communicator.
#pragma once

#include <chrono>
#include <span>
#include <string>

#include "heddle/base/error.h"
#include "heddle/base/export.h"

namespace heddle::mesh {

// "0-3, 6": ascending ranks, runs of three and more shortened.
HEDDLE_API std::string list_ranks(std::span<const int> ranks);

// how: "was killed or lost its machine", "failed: ...". waited: "all_gather on dp_shard", or empty for none.
HEDDLE_API Error rank_lost(int rank, const std::string& how, const std::string& waited);

// absent: the ranks that did not come; empty when it is not known which.
HEDDLE_API Error timed_out(const std::string& waited, std::chrono::milliseconds elapsed,
                           std::span<const int> absent);

}  // namespace heddle::mesh
