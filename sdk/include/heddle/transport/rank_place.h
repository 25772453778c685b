// The rank of this process and the address of the store, from the launcher's environment. Independent of
// LibTorch.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "heddle/base/export.h"

namespace heddle {

// A rank of a run and how it joins the other ranks.
struct RankPlace {
  int rank = 0, world_size = 1;
  int local_rank = 0, local_world_size = 1;  // among the ranks of this machine
  std::string host = "127.0.0.1";            // address of the store
  int port = 0;
  int listen_fd = -1;         // on rank 0, a listening socket for the store; -1: rank 0 opens one
  bool store_served = false;  // whether the launcher serves the store (torchrun's agent) instead of rank 0
  std::string session;        // separates the attempts of a restarted run in one store
  std::string launcher;       // "torchrun", "slurm", "openmpi", "heddle"; for messages
};

// Returns the value of an environment variable, or null if it is not set.
using Environment = std::function<const char*(const char* name)>;

// Returns the place given by torchrun (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR,
// MASTER_PORT), OpenMPI (OMPI_COMM_WORLD_*) or Slurm (SLURM_PROCID, ...), tried in this order, or empty if
// none is set. MASTER_ADDR and MASTER_PORT take precedence with every launcher. Throws Error{usage} naming a
// variable that is missing, not a number, or out of range.
HEDDLE_API std::optional<RankPlace> place_from_environment(const Environment& environment);
HEDDLE_API std::optional<RankPlace> place_from_environment();  // uses the environment of this process

// Returns the number of cores available to this process, divided by the ranks of this machine, at least 1.
HEDDLE_API int threads_per_rank(int local_world_size);

}  // namespace heddle
