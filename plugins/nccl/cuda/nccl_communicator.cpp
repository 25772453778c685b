// A blocking NCCL communicator, for which NCCL needs no extra thread. Initialization waits for other ranks in
// a separate thread, and the watchdog aborts a call that waits too long.
#include "cuda/nccl_communicator.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "cuda/check.h"
#include "heddle/mesh/call.h"

namespace heddle::nccl {
namespace {

constexpr std::chrono::milliseconds kLetGo{500}, kPause{1};

[[noreturn]] void fail(const std::string& doing, const std::string& said) {
  throw Error(ErrorCode::rank_lost, "nccl", doing + " failed: " + said,
              "set NCCL_DEBUG=WARN for details from NCCL, and check the other ranks");
}

std::chrono::milliseconds since(Clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start);
}

// Initialization of a communicator, which waits for the other ranks in a separate thread.
struct Joining {
  std::mutex mutex;
  std::condition_variable changed;
  bool ended = false, is_cancelled = false;  // is_cancelled: join() aborts the communicator once it exists
  ncclResult_t result = ncclSuccess;
  ncclComm_t comm = nullptr;
};

void join(const std::shared_ptr<Joining>& joining, const ncclUniqueId& id, const NcclOptions& options) {
  const OnDevice device(options.device);
  ncclComm_t comm = nullptr;
  const ncclResult_t result = functions().init_rank(&comm, options.size, id, options.rank);
  const std::lock_guard lock(joining->mutex);
  joining->ended = true;
  joining->result = result;
  joining->comm = comm;
  if (joining->is_cancelled && comm != nullptr) functions().abort(comm);
  joining->changed.notify_all();
}

// Throws if the other ranks do not join in time. The thread then ends when NCCL returns.
ncclComm_t joined(const ncclUniqueId& id, const NcclOptions& options, const Fault& fault) {
  const std::string doing = "rendezvous the other ranks";
  const auto joining = std::make_shared<Joining>();
  std::thread([joining, id, options] { join(joining, id, options); }).detach();
  const auto start = Clock::now();
  std::unique_lock lock(joining->mutex);
  while (!joining->changed.wait_for(lock, kPause, [&] { return joining->ended; })) {
    joining->is_cancelled = fault.is_set() || since(start) > options.timeout;
    if (!joining->is_cancelled) continue;
    fault.rethrow();
    throw mesh::timed_out(doing, since(start), {});
  }
  if (joining->result == ncclSuccess) return joining->comm;
  fault.rethrow();
  fail(doing, functions().nccl_message(joining->result));
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
      stream_(functions().pool_stream(options.device)),
      comm_(joined(id, options, *fault_)) {}

NcclCommunicator::~NcclCommunicator() {
  const auto end = Clock::now() + kLetGo;
  for (look(); !in_flight_.empty() && !fault_->is_set() && Clock::now() < end; look())
    std::this_thread::sleep_for(kPause);
  abort();
}

ncclComm_t NcclCommunicator::begin(mesh::Operation operation) {
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr) fail(mesh::name_of(operation), "the communicator was aborted");
  calling_ = Calling{operation, Clock::now()};
  return comm_;
}

void NcclCommunicator::end() {
  std::unique_lock lock(mutex_);
  calling_.reset();
  changed_.notify_all();
  const ncclComm_t left = std::exchange(left_, nullptr);
  lock.unlock();
  if (left != nullptr) functions().abort(left);
}

void NcclCommunicator::enqueue(mesh::Operation operation, Calls calls) {
  const ncclComm_t comm = begin(operation);
  ncclResult_t result = functions().group_start();
  if (result == ncclSuccess) {
    try {
      calls(comm, stream_);
    } catch (...) {
      functions().group_end();
      end();
      fault_->rethrow();
      throw;
    }
    result = functions().group_end();
  }
  end();
  if (result == ncclSuccess) return;
  fault_->rethrow();
  fail(mesh::name_of(operation), functions().nccl_message(result));
}

std::shared_ptr<Event> NcclCommunicator::post(mesh::Operation operation, Calls calls) {
  fault_->rethrow();
  const OnDevice device(options_.device);
  // A wait uses the event's current record, so one event is enough for all calls.
  ready_.record(functions().current_stream(options_.device));
  ready_.block(stream_);
  enqueue(operation, calls);
  auto done = events_.take();
  done->record(stream_);
  const std::lock_guard lock(mutex_);
  in_flight_.push_back({done, operation, Clock::now()});
  return done;
}

std::optional<Trouble> NcclCommunicator::look() {
  const std::lock_guard lock(mutex_);
  while (!in_flight_.empty() && in_flight_.front().done->passed()) in_flight_.pop_front();
  if (comm_ == nullptr || (in_flight_.empty() && !calling_)) return std::nullopt;
  const mesh::Operation operation = in_flight_.empty() ? calling_->operation : in_flight_.front().operation;
  const auto elapsed = since(in_flight_.empty() ? calling_->since : in_flight_.front().since);
  ncclResult_t now = ncclSuccess;
  if (const ncclResult_t asked = functions().async_error(comm_, &now); asked != ncclSuccess) now = asked;
  if (now != ncclSuccess && now != ncclInProgress)
    return Trouble{operation, elapsed, false, functions().nccl_message(now)};
  if (elapsed > options_.timeout) return Trouble{operation, elapsed, true, ""};
  return std::nullopt;
}

// A running call ends by itself. A call that waits for a rank is ended by revoking the communicator, because
// an abort would free memory that the call still reads.
void NcclCommunicator::abort() {
  std::unique_lock lock(mutex_);
  const ncclComm_t comm = std::exchange(comm_, nullptr);
  if (comm == nullptr) return;
  const auto is_out = [this] { return !calling_; };
  if (!changed_.wait_for(lock, kLetGo, is_out)) {
    lock.unlock();
    functions().revoke(comm, NCCL_REVOKE_DEFAULT);
    lock.lock();
    if (!is_out()) {
      left_ = comm;
      return;
    }
  }
  lock.unlock();
  functions().abort(comm);
}

}  // namespace heddle::nccl
