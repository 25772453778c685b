// Wrappers around a rendezvous, its groups and the works of their calls.
#include "lib/transport/traced.h"

#include <utility>

#include "core/mesh/wrapped.h"

namespace heddle {

void CallLog::add(TracedCall call) {
  const std::lock_guard lock(mutex_);
  calls_.push_back(std::move(call));
}

std::vector<TracedCall> CallLog::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(calls_, {});
}

namespace mesh {
namespace {

using TraceClock = std::chrono::steady_clock;

class TracedWork : public Work {
 public:
  TracedWork(std::unique_ptr<Work> inner, TracedCall call, CallLog& log)
      : inner_(std::move(inner)), call_(std::move(call)), log_(log) {}
  void wait() override {
    call_.waited = TraceClock::now();
    inner_->wait();
    call_.done = TraceClock::now();
    call_.waiter = std::this_thread::get_id();
    log_.add(std::move(call_));
  }
  bool done() const override { return inner_->done(); }

 private:
  std::unique_ptr<Work> inner_;
  TracedCall call_;
  CallLog& log_;
};

class TracedCommunicator : public WrappedCommunicator {
 public:
  TracedCommunicator(std::unique_ptr<Communicator> inner, CallLog& log)
      : WrappedCommunicator(std::move(inner)), log_(log) {}

 private:
  std::unique_ptr<Work> run(const GroupCall& of, Post post) override {
    if (!log_.is_open()) return post();
    TracedCall call;
    call.name = std::string(of.name) + " " + name();
    call.bytes = static_cast<int64_t>(of.tensor.nbytes());
    call.peer = of.peer;
    call.tag = of.tag;
    call.posted = TraceClock::now();
    return std::make_unique<TracedWork>(post(), std::move(call), log_);
  }

  CallLog& log_;
};

class TracedRendezvous : public WrappedRendezvous {
 public:
  TracedRendezvous(Rendezvous& inner, CallLog& log) : WrappedRendezvous(inner), calls_(log) {}
  std::unique_ptr<Communicator> group(const std::string& name, std::span<const int> ranks) override {
    return std::make_unique<TracedCommunicator>(inner().group(name, ranks), calls_);
  }

 private:
  CallLog& calls_;
};

}  // namespace

std::unique_ptr<Rendezvous> traced(Rendezvous& rendezvous, CallLog& log) {
  return std::make_unique<TracedRendezvous>(rendezvous, log);
}

}  // namespace mesh
}  // namespace heddle
