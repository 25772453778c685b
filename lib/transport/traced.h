// Records a rank's collectives and transfers: a rendezvous whose groups log their calls.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/mesh/rendezvous.h"

namespace heddle {

// One call as it ran. Times are of the steady clock, which all processes of a machine share.
struct TracedCall {
  using Time = std::chrono::steady_clock::time_point;
  std::string name;        // "all_gather dp_shard", "send pp"
  int64_t bytes = 0;       // of the larger tensor
  int peer = -1, tag = 0;  // of a transfer
  Time posted;             // the call
  Time waited, done;       // wait() of its Work: from, to
  std::thread::id waiter;
};

// Written by any thread while it is open. A call is logged if it is posted while the log is open.
class HEDDLE_API CallLog {
 public:
  void open(bool is_open) { open_.store(is_open, std::memory_order_relaxed); }
  bool is_open() const { return open_.load(std::memory_order_relaxed); }
  void add(TracedCall call);
  std::vector<TracedCall> take();

 private:
  std::atomic<bool> open_ = false;
  std::mutex mutex_;
  std::vector<TracedCall> calls_;
};

namespace mesh {

// Wraps a rendezvous so that its groups log their calls; while the log is closed a call costs one more load.
// Both outlive it and its groups. A device's own communicators are made by its plugin and are not logged.
HEDDLE_API std::unique_ptr<Rendezvous> traced(Rendezvous& rendezvous, CallLog& log);

}  // namespace mesh
}  // namespace heddle
