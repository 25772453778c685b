// Whether the threads of a machine's ranks are more than its cores.
#pragma once

namespace heddle {

// Threads that wait for each other by spinning then take the cores from those that work. A thread alone waits
// for none.
inline bool share_cores(int threads, int local_ranks, int cores) {
  return threads > 1 && static_cast<long>(threads) * local_ranks > cores;
}

}  // namespace heddle
