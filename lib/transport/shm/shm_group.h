// One group over shared memory on this rank: its regions and pending calls.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "heddle/mesh/communicator.h"
#include "lib/transport/shm/shm_arena.h"
#include "lib/transport/shm/shm_channels.h"
#include "lib/transport/shm/shm_rounds.h"

namespace heddle::mesh {

struct ShmGroupPlace {
  std::string name, key;   // the axis, for messages; what all members call this group alike
  std::vector<int> ranks;  // global
  int rank = 0;            // in the group
  // The same group without shared memory. why: the reason, on a rank without it.
  std::function<std::unique_ptr<Communicator>(const std::string& why)> instead;
};

// Not safe for several threads: the engine has the lock. arenas: the members'.
class ShmGroup {
 public:
  ShmGroup(ShmGroupPlace place, std::vector<std::shared_ptr<Arena>> arenas);
  ~ShmGroup();
  ShmGroup(const ShmGroup&) = delete;
  ShmGroup& operator=(const ShmGroup&) = delete;

  void post(const std::shared_ptr<Pending>& pending);
  // Makes some progress and wakes waiting ranks; false if none was possible. An error of one call fails all
  // pending calls.
  bool advance();
  bool idle() const;
  // True while others need more from this rank than it has put, or much is left to read.
  bool wants_help() const { return unsaid() || large_; }
  // Wakes the helpers of ranks that this one waits for, when they do not wait themselves.
  void call_for_help() const;

  const ShmGroupPlace& place() const { return place_; }

 private:
  enum class State { rendezvous, shared, apart, broken };

  bool unsaid() const;
  void meet();
  void attach(const std::vector<const Region*>& regions);
  void part();
  void start(const std::shared_ptr<Pending>& pending);
  void start_rows(const std::shared_ptr<Pending>& pending);
  bool step();
  void fail(std::exception_ptr fault);
  void ring_all() const;
  size_t ring_at(int from, int to) const;

  const ShmGroupPlace place_;
  const std::vector<std::shared_ptr<Arena>> arenas_;
  const size_t room_;  // of a ring
  ShmRounds rounds_;
  ShmChannels channels_;
  State state_ = State::rendezvous;
  bool large_ = false;
  std::string why_;
  Region* region_ = nullptr;
  std::vector<std::shared_ptr<Pending>> early_;  // posted before all had met
  std::unique_ptr<Communicator> instead_;
  std::exception_ptr fault_;
};

}  // namespace heddle::mesh
