// NCCL and CUDA's runtime on simulated GPUs: the table of functions of plugins/nccl, and what goes wrong.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace heddle::simulated {

// Questions of tests about the communicators of this process. All calls are safe from any thread. The first
// call of a communicator, and of one rank to another, blocks the host until the other ranks come to theirs,
// as NCCL connects them then. Large calls whose parts do not begin at multiples of 16 bytes are refused.
struct FakeNccl {
  // Forgets all; what waits in NCCL ends.
  static void begin();
  // The numbers of the communicators that each device has joined, in its order. The same number: the same
  // one.
  static std::map<int, std::vector<int>> joined();
  // Ranks of the communicator of that number.
  static int size_of(int number);
  static int aborted();       // communicators that ended by an abort
  static int freed_in_use();  // aborts of a communicator that a host was in
  // The bytes from which a call is large, until begin(): 64 KiB by default.
  static void set_large(size_t bytes);
  // A call whose communicator is given up goes on for so long.
  static void linger(std::chrono::milliseconds time);
  // The hardware as the environment sets it now, until the machine begins anew: kernels of 32 of 132 CTAs.
  static void start_driver();
  // Later calls stay in NCCL, on the host, until they are aborted: those of the devices' communicators, as a
  // first call does that connects to a rank that is gone.
  static void hold_calls(bool hold);
  static bool is_held();  // a call is held now
  // The asynchronous error of every communicator.
  static void fail_all();
};

}  // namespace heddle::simulated
