// The communicators of the fake NCCL, and what they have in common.
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

// The arguments of all ranks of one collective, or of both sides of one transfer.
struct Together {
  std::vector<mesh::Call> calls;
  std::shared_ptr<Meeting> meeting;
  bool is_transfer = false;
};

// By source and target (-1, -1: a collective), and which one it is.
using Key = std::tuple<int, int, uint64_t>;

// State that all ranks of a communicator share.
struct Shared {
  int number = 0, size = 0, joined = 0;
  std::map<Key, std::shared_ptr<Together>> calls;
  // Ranks that are connected, or wait to be, for collectives (-1, -1) and from one rank to another.
  std::map<std::pair<int, int>, std::set<int>> connected;
};

}  // namespace heddle::simulated

// NCCL's own name of a communicator.
struct ncclComm {
  std::shared_ptr<heddle::simulated::Shared> shared;
  int rank = 0, device = 0, inside = 0;            // inside: calls that a host is in, under the world's mutex
  bool revoked = false, aborted = false;           // the same
  std::map<std::pair<int, int>, uint64_t> posted;  // by source and target
};

namespace heddle::simulated {

constexpr size_t kLarge = 64 * 1024;

// State of this process.
struct World {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<int, std::shared_ptr<Shared>> shared;
  std::map<int, std::vector<int>> joined;
  std::vector<std::unique_ptr<ncclComm>> all;  // are kept: a call may be in one that is aborted
  int next = 0, aborted = 0, held = 0, freed_in_use = 0;
  uint64_t era = 0;
  bool holds = false, fails = false;
  std::atomic<size_t> large = kLarge;   // bytes
  std::chrono::milliseconds lingers{};  // in a call that is revoked
};

World& world();  // is never destroyed

// The members of the table that are calls: collectives, transfers and their groups.
void add_calls(nccl::Functions& table);

inline int index_in(cudaStream_t stream) {
  return static_cast<int>(reinterpret_cast<uintptr_t>(stream)) - 1;
}

}  // namespace heddle::simulated
