// Waiting policy of the threads of a machine's ranks.
#pragma once

#include <optional>

namespace heddle {

// Whether threads share cores, so that a spinning thread would take a core from a working one. A single
// thread does not wait.
inline bool share_cores(int threads, int local_ranks, int cores) {
  return threads > 1 && static_cast<long>(threads) * local_ranks > cores;
}

// A variable of OpenMP's environment.
struct Waiting {
  const char* variable;
  const char* value;
};

// Threads that share cores do not spin. Other threads spin for a short time (figures in
// lib/cost/DECISIONS.md): they wait longer only if other processes use their cores, and spinning would take
// cores from the threads they wait for. threads: empty if the ranks share the cores.
inline Waiting wait_setting(std::optional<int> threads, int local_ranks, int cores) {
  if (threads && share_cores(*threads, local_ranks, cores)) return {"OMP_WAIT_POLICY", "passive"};
  return {"GOMP_SPINCOUNT", "5000"};
}

}  // namespace heddle
