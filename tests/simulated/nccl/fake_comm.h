// Communicators of the fake NCCL, and their shared state.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "cuda/functions.h"
#include "heddle/mesh/call.h"
#include "lib/simulated/machine.h"

namespace heddle::simulated {

// Arguments of all ranks of one collective, or of both sides of one transfer.
struct Together {
  std::vector<mesh::Call> calls;
  std::shared_ptr<Meeting> meeting;
  bool is_transfer = false;
};

// Source, target (-1, -1 for a collective) and sequence number of a call.
using Key = std::tuple<int, int, uint64_t>;

// State shared by all ranks of a communicator.
struct Shared {
  int number = 0, size = 0, joined = 0;
  std::map<Key, std::shared_ptr<Together>> calls;
  // Ranks connected or connecting, for collectives (-1, -1) and per pair (source, target).
  std::map<std::pair<int, int>, std::set<int>> connected;
};

}  // namespace heddle::simulated

// NCCL's type behind ncclComm_t.
struct ncclComm {
  std::shared_ptr<heddle::simulated::Shared> shared;
  int rank = 0, device = 0, inside = 0;            // inside: calls in progress, under the world's mutex
  bool revoked = false, aborted = false;           // under the world's mutex
  std::map<std::pair<int, int>, uint64_t> posted;  // by (source, target)
};

namespace heddle::simulated {

constexpr size_t kLarge = 64 * 1024;

// Global state of this process.
struct World {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<int, std::shared_ptr<Shared>> shared;
  std::map<int, std::vector<int>> joined;
  std::vector<std::unique_ptr<ncclComm>> all;  // kept after an abort, because a call may still use them
  int next = 0, aborted = 0, held = 0, freed_in_use = 0;
  uint64_t era = 0;
  bool holds = false, fails = false;
  std::atomic<size_t> large = kLarge;   // bytes
  std::chrono::milliseconds lingers{};  // delay before a revoked call returns
};

World& world();  // never destroyed

// Adds collectives, transfers and group calls to the table.
void add_calls(nccl::Functions& table);

inline int index_in(cudaStream_t stream) {
  return static_cast<int>(reinterpret_cast<uintptr_t>(stream)) - 1;
}

}  // namespace heddle::simulated
