// How the threads of a machine's ranks wait for each other.
#pragma once

#include <optional>

namespace heddle {

// Threads that wait for each other by spinning then take the cores from those that work. A thread alone waits
// for none.
inline bool share_cores(int threads, int local_ranks, int cores) {
  return threads > 1 && static_cast<long>(threads) * local_ranks > cores;
}

// A variable of OpenMP's environment.
struct Waiting {
  const char* variable;
  const char* value;
};

// Threads that share cores do not spin. Others spin for a short time (lib/cost/DECISIONS.md has figures):
// they wait longer only where other processes have their cores, and a thread that spins on takes these cores
// from the ones it waits for. threads: empty where the ranks share the cores.
inline Waiting waiting_of(std::optional<int> threads, int local_ranks, int cores) {
  if (threads && share_cores(*threads, local_ranks, cores)) return {"OMP_WAIT_POLICY", "passive"};
  return {"GOMP_SPINCOUNT", "5000"};
}

}  // namespace heddle
