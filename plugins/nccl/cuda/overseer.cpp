// A look each 100 ms; nothing of it is on the path of a step.
#include "cuda/overseer.h"

#include <c10/cuda/CUDAFunctions.h>

#include "heddle/mesh/faults.h"

namespace heddle::nccl {
namespace {

constexpr std::chrono::milliseconds kGlance{100};
constexpr std::chrono::seconds kGrace{3};

}  // namespace

Overseer::Overseer(Rendezvous& host, int device) : host_(host), device_(device) {
  host_.interrupt(this, [this] {
    const std::lock_guard lock(mutex_);
    if (!lost_) lost_ = Clock::now();
  });
  thread_ = std::thread([this] { oversee(); });
}

Overseer::~Overseer() {
  host_.forget(this);
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Overseer::add(Line* line, std::string group, std::vector<int> members) {
  const std::lock_guard lock(mutex_);
  lines_[line] = {std::move(group), std::move(members)};
}

void Overseer::remove(Line* line) {
  const std::lock_guard lock(mutex_);
  lines_.erase(line);
}

void Overseer::oversee() {
  try {
    c10::cuda::set_device(static_cast<c10::DeviceIndex>(device_));
    while (!ends_within(kGlance)) look();
  } catch (const Error& error) {
    give_up(error);
  } catch (const std::exception& error) {
    give_up(Error(ErrorCode::internal, "nccl", error.what()));
  }
}

bool Overseer::ends_within(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, time, [this] { return stop_; });
}

// Throws what it finds.
void Overseer::look() {
  Watched watched;
  std::optional<Trouble> trouble;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [line, group] : lines_) {
      trouble = line->look();
      if (!trouble) continue;
      watched = group;
      break;
    }
    if (!trouble && !(lost_ && Clock::now() - *lost_ > kGrace)) return;
  }
  if (trouble) throw error_of(*trouble, watched);
  throw host_.verdict({"a step", {}, {}, Broken::How::failed, "a rank is lost"});
}

Error Overseer::error_of(const Trouble& trouble, const Watched& watched) {
  const std::string waited = std::string(mesh::name_of(trouble.operation)) + " on " + watched.group;
  if (!trouble.late)
    return host_.verdict({waited, watched.members, trouble.elapsed, Broken::How::failed, trouble.said});
  // Every host waits for its device then, so the beats cannot tell who is late.
  const Error error = mesh::timed_out(waited, trouble.elapsed, {});
  host_.abandon(error.message());
  return error;
}

void Overseer::give_up(const Error& error) {
  fault_->set(error);
  const std::lock_guard lock(mutex_);
  for (const auto& [line, group] : lines_) line->abort();
}

}  // namespace heddle::nccl
