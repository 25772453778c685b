// The heartbeat that a rank writes to the store, and the ranks that read it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "heddle/base/export.h"
#include "lib/transport/launch/process.h"

namespace heddle::mesh {

// A rank that others may wait for.
struct LateRank {
  int rank = 0;
  char how = 'c';  // c: computes; T, t: its process is stopped, traced; s: silent, no heartbeat
};

// One line. late: ranks of this rank's part of the tree, at most kMostLate, and stopped or traced ranks of
// its host. contact: see ProbeSocket; empty if all ranks are on one host.
struct HEDDLE_API Beat {
  int64_t count = -1;
  char state = '?';  // w: waits for others, c: computes, l: has left
  Process process = {};
  std::vector<LateRank> late = {};
  std::string contact = {};

  std::string text() const;
  static Beat read(const std::string& text);
};

constexpr size_t kMostLate = 8;

// The tree of heartbeats: ranks in blocks of 8, 64, 512, ... The first rank of a block hears the first rank
// of each block in it. Rank 0 hears 28 of 4,096, seven of eight ranks hear none.
HEDDLE_API std::vector<int> heard_by(int rank, int world_size);

}  // namespace heddle::mesh
