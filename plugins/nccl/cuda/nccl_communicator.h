// An NCCL communicator with its own stream. Posted calls run on the stream in order, after earlier compute.
#pragma once

#include <c10/util/FunctionRef.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cuda/events.h"
#include "cuda/functions.h"
#include "heddle/base/error.h"
#include "heddle/mesh/call.h"

namespace heddle::nccl {

using Clock = std::chrono::steady_clock;

// The fault of the process. The first thread that finds a fault sets it, and every later call throws it.
class Fault {
 public:
  void set(const Error& error);
  bool is_set() const { return set_; }
  void rethrow() const;  // returns if there is no fault

 private:
  std::atomic<bool> set_ = false;
  mutable std::mutex mutex_;
  std::optional<Error> error_;
};

// An enqueued operation that has not ended, for the watchdog.
struct InFlight {
  std::shared_ptr<Event> done;
  mesh::Operation operation;
  Clock::time_point since;
};

// A communicator's fault, found by the watchdog.
struct Trouble {
  mesh::Operation operation;
  std::chrono::milliseconds elapsed{};
  bool late = false;  // exceeded the timeout; false: NCCL itself failed
  std::string said;
};

struct NcclOptions {
  int device = 0;
  int rank = 0, size = 1;  // in the communicator
  std::chrono::milliseconds timeout{};
};

class NcclCommunicator {
 public:
  // Joins the other ranks of `id`. Waits for them until the timeout, or until `fault` is set. Throws
  // Error{timeout | rank_lost}.
  NcclCommunicator(const ncclUniqueId& id, NcclOptions options, std::shared_ptr<Fault> fault);
  // Waits briefly for calls in flight, then aborts without the other ranks.
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  // Enqueues `calls` (NCCL calls of one NCCL group) after the work on the current stream, and returns the
  // event of their end. Does not block, except that NCCL may connect ranks in the first calls.
  using Calls = c10::function_ref<void(ncclComm_t, cudaStream_t)>;
  std::shared_ptr<Event> post(mesh::Operation operation, Calls calls);

  // For the watchdog's thread: forgets operations that have ended. Empty: no fault.
  std::optional<Trouble> look();
  // Ends calls in flight on the device, and a call that the host is blocked in. Any thread may call it. The
  // communicator is freed when the host has left that call.
  void abort();

 private:
  // Returns the communicator for a call that begins. Throws after an abort.
  ncclComm_t begin(mesh::Operation operation);
  void end();
  void enqueue(mesh::Operation operation, Calls calls);

  const NcclOptions options_;
  const std::shared_ptr<Fault> fault_;
  const cudaStream_t stream_;
  Event ready_;
  Events events_;
  std::mutex mutex_;  // guards the members below; never held in a call that may block
  std::condition_variable changed_;
  ncclComm_t comm_ = nullptr;  // null after an abort
  ncclComm_t left_ = nullptr;  // aborted while the host is in a call, whose end() frees it; else null
  struct Calling {
    mesh::Operation operation;
    Clock::time_point since;
  };
  std::optional<Calling> calling_;  // the call that the host is in
  std::deque<InFlight> in_flight_;
};

}  // namespace heddle::nccl
