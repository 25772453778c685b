// Two threads at most, of which one runs: part_ says which.
#include "core/mesh/overlap.h"

#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <optional>
#include <utility>

#include "core/mesh/wrapped.h"
#include "heddle/base/error.h"

namespace heddle {
namespace {

thread_local int holds = 0;

std::optional<c10::Stream> stream_of(c10::Device device) {
  if (device.is_cpu() || device.is_meta()) return std::nullopt;
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

}  // namespace

Overlap::Hold::Hold() {
  ++holds;
}

Overlap::Hold::~Hold() {
  --holds;
}

Overlap::~Overlap() {
  if (!thread_.joinable()) return;
  is_ending_ = true;
  part_.store(1);
  part_.notify_all();
  thread_.join();
}

void Overlap::run(c10::function_ref<void()> first, c10::function_ref<void()> second) {
  if (is_running()) throw Error(ErrorCode::internal, "mesh", "two actions are overlapped already");
  second_ = [this, second, state = at::ThreadLocalState(), threads = at::get_num_threads(),
             stream = stream_of(device_)] {
    if (at::get_num_threads() != threads) at::set_num_threads(threads);
    const at::ThreadLocalStateGuard same_state(state);
    const c10::OptionalStreamGuard same_stream(stream);
    perform(1, second);
  };
  handed_over_ = has_ended_[0] = has_ended_[1] = false;
  away_[0] = away_[1] = {};
  is_running_ = true;
  perform(0, first);
  if (!handed_over_ && !error_) {
    perform(1, second);  // it waited for no other rank, and no second thread is needed
  } else if (handed_over_ && !has_ended_[1]) {
    give(1);
  }
  is_running_ = false;
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void Overlap::perform(int part, c10::function_ref<void()> body) {
  try {
    body();
  } catch (...) {
    if (!error_) error_ = std::current_exception();
  }
  has_ended_[part] = true;
}

// Returns when the other part gives back.
void Overlap::give(int part) {
  part_.store(part);
  part_.notify_all();
  part_.wait(part);
}

void Overlap::hand_over() {
  const int part = part_.load(), other = 1 - part;
  if (!is_running() || has_ended_[0] || has_ended_[1] || holds > 0) return;
  const auto begin = Clock::now();
  if (!thread_.joinable()) thread_ = std::thread([this] { serve(); });
  handed_over_ = true;
  give(other);
  away_[part] += Clock::now() - begin;
}

void Overlap::wait(Work& work) {
  hand_over();
  work.wait();
  if (error_) throw Error(ErrorCode::internal, "mesh", "the other one of two overlapped actions failed");
}

void Overlap::serve() {
  for (;;) {
    part_.wait(0);
    if (is_ending_) return;
    second_();
    part_.store(0);
    part_.notify_all();
  }
}

namespace mesh {
namespace {

class OverlappedWork : public Work {
 public:
  OverlappedWork(std::unique_ptr<Work> inner, Overlap& overlap)
      : inner_(std::move(inner)), overlap_(overlap) {}
  void wait() override { overlap_.wait(*inner_); }
  bool done() const override { return inner_->done(); }

 private:
  std::unique_ptr<Work> inner_;
  Overlap& overlap_;
};

class OverlappedCommunicator : public WrappedCommunicator {
 public:
  OverlappedCommunicator(std::unique_ptr<Communicator> inner, Overlap& overlap)
      : WrappedCommunicator(std::move(inner)), overlap_(overlap) {}

 private:
  std::unique_ptr<Work> run(const GroupCall&, Post post) override {
    if (!overlap_.is_running()) return post();
    return std::make_unique<OverlappedWork>(post(), overlap_);
  }

  Overlap& overlap_;
};

}  // namespace

std::unique_ptr<Communicator> overlapped(std::unique_ptr<Communicator> group, Overlap& overlap) {
  return std::make_unique<OverlappedCommunicator>(std::move(group), overlap);
}

}  // namespace mesh
}  // namespace heddle
