// Watchdog of a process's NCCL communicators: one thread that finds failed and late collectives, and lost
// ranks.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cuda/nccl_communicator.h"
#include "heddle/mesh/rendezvous.h"

namespace heddle::nccl {

// NCCL's kernels and the host wait forever for a dead rank. The watchdog records a fault, which every later
// call throws, and then aborts the communicators, which frees the device and the host. The host's rendezvous
// determines the lost rank. A program that exits on a lost rank has 3 s to do so first.
class Watchdog {
 public:
  Watchdog(Rendezvous& host, int device);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  const std::shared_ptr<Fault>& fault() const { return fault_; }
  std::chrono::milliseconds timeout() const { return host_.timeout(); }

  // Throws Error{mesh} if one more communicator would share a stream. group: name for messages.
  void check_room(const std::string& group);
  // members: global ranks.
  void add(NcclCommunicator* communicator, std::string group, std::vector<int> members);
  void remove(NcclCommunicator* communicator);

 private:
  struct Watched {
    std::string group;
    std::vector<int> members;
  };
  void watch();
  bool ends_within(std::chrono::milliseconds time);
  void look();
  Error error_of(const Trouble& trouble, const Watched& watched);
  void give_up(const Error& error);

  Rendezvous& host_;
  const int device_;
  const std::shared_ptr<Fault> fault_ = std::make_shared<Fault>();
  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::map<NcclCommunicator*, Watched> communicators_;
  bool stop_ = false;
  std::optional<Clock::time_point> lost_;  // time at which the host first reported a lost rank
  std::thread thread_;
};

}  // namespace heddle::nccl
