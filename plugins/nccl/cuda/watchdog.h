// The watchdog of a process's NCCL communicators: one thread finds failed and late collectives, and lost
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

// NCCL's kernels wait for a dead rank for ever, and so does the host. A finding becomes the fault that every
// later call throws; then the communicators are aborted, which frees the device and the host. The host's
// rendezvous determines the lost rank. A program that exits on a lost rank has 3 s to do so first.
class Watchdog {
 public:
  Watchdog(Rendezvous& host, int device);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  const std::shared_ptr<Fault>& fault() const { return fault_; }
  std::chrono::milliseconds timeout() const { return host_.timeout(); }

  // Throws Error{mesh} where one more communicator would share a stream. group: for messages.
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
  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::map<NcclCommunicator*, Watched> communicators_;
  bool stop_ = false;
  std::optional<Clock::time_point> lost_;  // when the host first reported a lost rank
  std::thread thread_;
};

}  // namespace heddle::nccl
