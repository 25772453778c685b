// Watchdog thread that polls every 100 ms, separate from the steps.
#include "cuda/watchdog.h"

#include <string>

#include "cuda/functions.h"
#include "heddle/mesh/call.h"

namespace heddle::nccl {
namespace {

constexpr std::chrono::milliseconds kPoll{100};
constexpr std::chrono::seconds kGrace{3};

}  // namespace

Watchdog::Watchdog(Rendezvous& host, int device) : host_(host), device_(device) {
  host_.interrupt(this, [this] {
    const std::lock_guard lock(mutex_);
    if (!lost_) lost_ = Clock::now();
  });
  thread_ = std::thread([this] { watch(); });
}

Watchdog::~Watchdog() {
  host_.forget(this);
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Watchdog::check_room(const std::string& group) {
  const std::lock_guard lock(mutex_);
  if (communicators_.size() < kPoolStreams) return;
  throw Error(ErrorCode::mesh, "nccl",
              "axis " + group + ": this rank would have " + std::to_string(communicators_.size() + 1) +
                  " NCCL communicators; LibTorch has " + std::to_string(kPoolStreams) +
                  " streams for them, and two communicators on one stream can deadlock",
              "use fewer axes, or a pipeline without pp_post_validation");
}

void Watchdog::add(NcclCommunicator* communicator, std::string group, std::vector<int> members) {
  const std::lock_guard lock(mutex_);
  communicators_[communicator] = {std::move(group), std::move(members)};
}

void Watchdog::remove(NcclCommunicator* communicator) {
  const std::lock_guard lock(mutex_);
  communicators_.erase(communicator);
}

void Watchdog::watch() {
  try {
    const OnDevice device(device_);
    while (!ends_within(kPoll)) look();
  } catch (const Error& error) {
    give_up(error);
  } catch (const std::exception& error) {
    give_up(Error(ErrorCode::internal, "nccl", error.what()));
  }
}

bool Watchdog::ends_within(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, time, [this] { return stop_; });
}

// Throws the fault that it finds.
void Watchdog::look() {
  Watched watched;
  std::optional<Trouble> trouble;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [communicator, group] : communicators_) {
      trouble = communicator->look();
      if (!trouble) continue;
      watched = group;
      break;
    }
    if (!trouble && !(lost_ && Clock::now() - *lost_ > kGrace)) return;
  }
  if (trouble) throw error_of(*trouble, watched);
  throw host_.verdict({"a step", {}, {}, Broken::How::failed, "a rank is lost"});
}

Error Watchdog::error_of(const Trouble& trouble, const Watched& watched) {
  const std::string waited = std::string(mesh::name_of(trouble.operation)) + " on " + watched.group;
  if (!trouble.late)
    return host_.verdict({waited, watched.members, trouble.elapsed, Broken::How::failed, trouble.said});
  // While a GPU waits, its host waits too, so heartbeats cannot tell which rank is late.
  const Error error = mesh::timed_out(waited, trouble.elapsed, {});
  host_.abandon(error.message());
  return error;
}

void Watchdog::give_up(const Error& error) {
  fault_->set(error);
  const std::lock_guard lock(mutex_);
  for (const auto& [communicator, group] : communicators_) communicator->abort();
}

}  // namespace heddle::nccl
