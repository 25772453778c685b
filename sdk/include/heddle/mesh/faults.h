// Errors about lost ranks and timeouts: one wording for every communicator.
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

// A rank that did not come. why: "stopped by a signal, state T"; empty: unknown, or its process runs.
struct Absent {
  int rank = 0;
  std::string why = {};
};

// absent: empty if unknown.
HEDDLE_API Error timed_out(const std::string& waited, std::chrono::milliseconds elapsed,
                           std::span<const Absent> absent);

// "1.5 s".
HEDDLE_API std::string in_seconds(std::chrono::milliseconds time);

}  // namespace heddle::mesh
