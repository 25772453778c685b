// A non-blocking NCCL communicator: a call that NCCL works on in its own thread is waited for here, so that a
// lost rank or a timeout ends the wait.
#include "cuda/nccl_communicator.h"

#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <thread>

#include "cuda/check.h"
#include "heddle/mesh/call.h"

namespace heddle::nccl {
namespace {

constexpr std::chrono::milliseconds kLetGo{500}, kPause{1};

[[noreturn]] void fail(const std::string& doing, const std::string& said) {
  throw Error(ErrorCode::rank_lost, "nccl", doing + " failed: " + said,
              "NCCL_DEBUG=WARN lets NCCL say more; see the other ranks too");
}

std::chrono::milliseconds since(Clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start);
}

}  // namespace

void Fault::set(const Error& error) {
  const std::lock_guard lock(mutex_);
  if (!error_) error_ = error;
  set_ = true;
}

void Fault::rethrow() const {
  if (!set_) return;
  const std::lock_guard lock(mutex_);
  throw *error_;
}

NcclCommunicator::NcclCommunicator(const ncclUniqueId& id, NcclOptions options, std::shared_ptr<Fault> fault)
    : options_(options),
      fault_(std::move(fault)),
      stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/true,
                                           static_cast<c10::DeviceIndex>(options.device))) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclResult_t result = ncclCommInitRankConfig(&comm_, options_.size, id, options_.rank, &config);
  try {
    settle(result, "rendezvous the other ranks");
  } catch (...) {
    abort();
    throw;
  }
}

NcclCommunicator::~NcclCommunicator() {
  const auto end = Clock::now() + kLetGo;
  for (look(); !in_flight_.empty() && !fault_->is_set() && Clock::now() < end; look())
    std::this_thread::sleep_for(kPause);
  abort();
}

ncclResult_t NcclCommunicator::state() {
  const std::lock_guard lock(comm_mutex_);
  ncclResult_t state = ncclInvalidUsage;
  if (comm_ == nullptr) return state;
  const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
  return asked == ncclSuccess ? state : asked;
}

void NcclCommunicator::settle(ncclResult_t result, const std::string& doing) {
  const auto start = Clock::now();
  while (result == ncclInProgress) {
    fault_->rethrow();
    if (since(start) > options_.timeout) throw mesh::timed_out(doing, since(start), {});
    result = state();
    if (result == ncclInProgress) std::this_thread::yield();
  }
  if (result == ncclSuccess) return;
  fault_->rethrow();
  fail(doing, ncclGetErrorString(result));
}

ncclResult_t NcclCommunicator::enqueue(mesh::Operation operation, Calls calls) {
  const std::lock_guard lock(comm_mutex_);
  if (comm_ == nullptr) fail(mesh::name_of(operation), "the communicator was given up");
  if (const ncclResult_t started = ncclGroupStart(); started != ncclSuccess) return started;
  try {
    calls(comm_, stream_.stream());
  } catch (...) {
    ncclGroupEnd();
    throw;
  }
  return ncclGroupEnd();
}

std::shared_ptr<Event> NcclCommunicator::post(mesh::Operation operation, Calls calls) {
  fault_->rethrow();
  const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(options_.device));
  // A wait uses the event's current record, so one event is enough for all calls.
  ready_.record(c10::cuda::getCurrentCUDAStream().stream());
  ready_.block(stream_.stream());
  settle(enqueue(operation, calls), mesh::name_of(operation));
  auto done = events_.take();
  done->record(stream_.stream());
  const std::lock_guard lock(mutex_);
  in_flight_.push_back({done, operation, Clock::now()});
  return done;
}

std::optional<Trouble> NcclCommunicator::look() {
  const std::lock_guard lock(mutex_);
  while (!in_flight_.empty() && in_flight_.front().done->passed()) in_flight_.pop_front();
  if (in_flight_.empty()) return std::nullopt;
  const InFlight& oldest = in_flight_.front();
  const auto elapsed = since(oldest.since);
  if (const ncclResult_t now = state(); now != ncclSuccess && now != ncclInProgress)
    return Trouble{oldest.operation, elapsed, false, ncclGetErrorString(now)};
  if (elapsed > options_.timeout) return Trouble{oldest.operation, elapsed, true, ""};
  return std::nullopt;
}

void NcclCommunicator::abort() {
  const std::lock_guard lock(comm_mutex_);
  if (comm_ != nullptr) ncclCommAbort(comm_);
  comm_ = nullptr;
}

}  // namespace heddle::nccl
