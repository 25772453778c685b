// Looks after the lines of a process: one thread that finds failed and late collectives, and lost ranks.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cuda/line.h"
#include "heddle/mesh/rendezvous.h"

namespace heddle::nccl {

// NCCL's kernels wait for a dead rank for ever, and the host behind them. A finding becomes the fault that
// every later call throws; then the lines are aborted, which frees the device and so the host. The host's
// meeting says which rank is to blame. A program that ends itself on a lost rank has 3 s to do so first, as
// what the device still holds is worthless.
class Overseer {
 public:
  Overseer(Rendezvous& host, int device);
  ~Overseer();
  Overseer(const Overseer&) = delete;
  Overseer& operator=(const Overseer&) = delete;

  const std::shared_ptr<Fault>& fault() const { return fault_; }
  std::chrono::milliseconds timeout() const { return host_.timeout(); }

  // group: for messages; members: global ranks.
  void add(Line* line, std::string group, std::vector<int> members);
  void remove(Line* line);

 private:
  struct Watched {
    std::string group;
    std::vector<int> members;
  };
  void oversee();
  bool ends_within(std::chrono::milliseconds time);
  void look();
  Error error_of(const Trouble& trouble, const Watched& watched);
  void give_up(const Error& error);

  Rendezvous& host_;
  const int device_;
  const std::shared_ptr<Fault> fault_ = std::make_shared<Fault>();
  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::map<Line*, Watched> lines_;
  bool stop_ = false;
  std::optional<Clock::time_point> lost_;  // when the host first spoke of a lost rank
  std::thread thread_;
};

}  // namespace heddle::nccl
