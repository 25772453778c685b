// Who this process is among the ranks of a run, as the launcher's environment says; no LibTorch.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "heddle/base/export.h"

namespace heddle {

struct RankPlace {
  int rank = 0, world_size = 1;
  int local_rank = 0, local_world_size = 1;  // among the ranks of this machine
  std::string host = "127.0.0.1";            // address of the store, served by rank 0 ...
  int port = 0;
  int listen_fd = -1;         // ... on this socket, bound and listening, when rank 0 was given one
  bool store_served = false;  // ... or that the launcher serves itself (torchrun's agent)
  std::string session;        // distinguishes the attempts of a restarted run in one store
  std::string launcher;       // "torchrun", "slurm", "openmpi", "heddle"; for messages
};

// Looks a variable up; null when it is not set.
using Environment = std::function<const char*(const char* name)>;

// The place given by torchrun (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT),
// OpenMPI (OMPI_COMM_WORLD_*) or Slurm (SLURM_PROCID, ...) tried in this order; empty if none is set.
// MASTER_ADDR and MASTER_PORT take precedence under every launcher. Throws Error{usage} naming a variable
// that is missing or is not a number in its range.
HEDDLE_API std::optional<RankPlace> place_from_environment(const Environment& environment);
HEDDLE_API std::optional<RankPlace> place_from_environment();  // of this process

// The cores that this process may use, divided by the ranks of this machine; at least 1.
HEDDLE_API int threads_per_rank(int local_world_size);

}  // namespace heddle
