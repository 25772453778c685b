// Finds the ranks of this machine that can share memory; determined together, before the first group.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/mesh/rendezvous.h"
#include "lib/transport/launch/process.h"
#include "lib/transport/shm/shm_arena.h"

namespace heddle::mesh {

// The ranks of this machine that share memory; no arenas: this machine's ranks use the network.
struct SharedMachine {
  std::map<int, std::shared_ptr<Arena>> arenas;  // by global rank, this rank's own among them
  std::string why;  // the reason, if memory should be shared and cannot, on the machine's first rank only
};

// Two rendezvous of all ranks of the run. Ranks are of one machine when they share its start (boot id) and
// its process table; they share memory when each of them can, and none has HEDDLE_SHM=0. most: bytes for this
// rank's groups; table: what names this rank's machine and process table. Throws Error{usage} for another
// value of HEDDLE_SHM.
HEDDLE_API SharedMachine share_memory(size_t most, Rendezvous& rendezvous,
                                      const std::string& table = this_process().table);

}  // namespace heddle::mesh
