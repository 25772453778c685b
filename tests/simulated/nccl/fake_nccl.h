// Fake NCCL and CUDA runtime on simulated GPUs: a function table for plugins/nccl, and fault injection.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace heddle::simulated {

// Test access to the communicators of this process. Thread-safe. The first call of a communicator, and the
// first transfer of each pair, block the host until the other ranks post theirs, because NCCL connects ranks
// then. Large calls with parts not aligned to 16 bytes are refused.
struct FakeNccl {
  // Resets all state. Blocked NCCL calls return.
  static void begin();
  // Returns, by device, the communicators that the device joined, in order. Equal numbers mean the same
  // communicator.
  static std::map<int, std::vector<int>> joined();
  // Returns the number of ranks of a communicator.
  static int size_of(int number);
  static int aborted();       // number of aborted communicators
  static int freed_in_use();  // number of communicators aborted during a host call
  // Sets the size in bytes from which a call is large, until begin(). Default: 64 KiB.
  static void set_large(size_t bytes);
  // Sets how long a call continues after its communicator is aborted.
  static void linger(std::chrono::milliseconds time);
  // Sets hardware limits from the environment until the machine is reset: 132 CTAs, 32 per kernel.
  static void start_driver();
  // Blocks later calls on the devices' communicators on the host until they are aborted, as a first call to a
  // lost rank does.
  static void hold_calls(bool hold);
  static bool is_held();  // whether a call is blocked now
  // Sets the asynchronous error of every communicator.
  static void fail_all();
};

}  // namespace heddle::simulated
