// One NCCL communicator with a stream of its own: posted calls run there in order, after the compute.
#pragma once

#include <c10/cuda/CUDAStream.h>
#include <c10/util/FunctionRef.h>
#include <nccl.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cuda/events.h"
#include "heddle/base/error.h"
#include "heddle/mesh/call.h"

namespace heddle::nccl {

using Clock = std::chrono::steady_clock;

// The fault of the process: set once, by the first to find it; every later call throws it.
class Fault {
 public:
  void set(const Error& error);
  bool is_set() const { return set_; }
  void rethrow() const;  // returns when there is none

 private:
  std::atomic<bool> set_ = false;
  mutable std::mutex mutex_;
  std::optional<Error> error_;
};

// An operation that was enqueued and has not ended, for the watchdog.
struct InFlight {
  std::shared_ptr<Event> done;
  mesh::Operation operation;
  Clock::time_point since;
};

// A communicator's fault, as found by the watchdog.
struct Trouble {
  mesh::Operation operation;
  std::chrono::milliseconds elapsed{};
  bool late = false;  // longer than the timeout; else NCCL itself failed
  std::string said;
};

struct NcclOptions {
  int device = 0;
  int rank = 0, size = 1;  // in the communicator
  std::chrono::milliseconds timeout{};
};

class NcclCommunicator {
 public:
  // Joins the other ranks of `id`; they do the same. Waits for them, at most the timeout or until `fault` is
  // set. Made where the device is the current one. Throws Error{timeout | rank_lost}.
  NcclCommunicator(const ncclUniqueId& id, NcclOptions options, std::shared_ptr<Fault> fault);
  // Waits briefly for calls in flight, then aborts without the other ranks.
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  // Enqueues `calls` (NCCL calls between one group's start and end) after the work on the current stream, and
  // returns at once with the event of their end.
  using Calls = c10::function_ref<void(ncclComm_t, cudaStream_t)>;
  std::shared_ptr<Event> post(mesh::Operation operation, Calls calls);

  // For the watchdog's thread: forgets operations that have ended. Empty: no fault.
  std::optional<Trouble> look();
  void abort();  // aborts calls in flight on the device; any thread

 private:
  // Waits for NCCL's own thread; throws when it failed.
  void settle(ncclResult_t result, const std::string& doing);
  ncclResult_t state();
  ncclResult_t enqueue(mesh::Operation operation, Calls calls);

  const NcclOptions options_;
  const std::shared_ptr<Fault> fault_;
  const c10::cuda::CUDAStream stream_;
  std::mutex comm_mutex_;      // held for one call of NCCL, which never blocks
  ncclComm_t comm_ = nullptr;  // null once aborted
  Event ready_;
  Events events_;
  std::mutex mutex_;
  std::deque<InFlight> in_flight_;
};

}  // namespace heddle::nccl
