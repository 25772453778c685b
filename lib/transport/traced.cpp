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
    call.what = std::string(of.name) + " " + name();
    call.bytes = static_cast<int64_t>(of.tensor.nbytes());
    call.peer = of.peer;
    call.tag = of.tag;
    call.posted = TraceClock::now();
    return std::make_unique<TracedWork>(post(), std::move(call), log_);
  }

  CallLog& log_;
};

class TracedRendezvous : public Rendezvous {
 public:
  TracedRendezvous(Rendezvous& inner, CallLog& log) : inner_(inner), calls_(log) {}
  int rank() const override { return inner_.rank(); }
  int world_size() const override { return inner_.world_size(); }
  int local_rank() const override { return inner_.local_rank(); }
  int local_world_size() const override { return inner_.local_world_size(); }
  const Log& log() const override { return inner_.log(); }
  c10::Device device() const override { return inner_.device(); }
  std::string hold_rendezvous(const std::string& key, const std::string& text,
                              const Answer& answer) override {
    return inner_.hold_rendezvous(key, text, answer);
  }
  std::unique_ptr<Communicator> group(const std::string& name, std::span<const int> ranks) override {
    return std::make_unique<TracedCommunicator>(inner_.group(name, ranks), calls_);
  }
  void leave() override { inner_.leave(); }
  void abandon(const std::string& why) override { inner_.abandon(why); }
  std::chrono::milliseconds timeout() const override { return inner_.timeout(); }
  Error verdict(const Broken& broken) override { return inner_.verdict(broken); }
  void interrupt(const void* owner, std::function<void()> release) override {
    inner_.interrupt(owner, std::move(release));
  }
  void forget(const void* owner) override { inner_.forget(owner); }

 private:
  Rendezvous& inner_;
  CallLog& calls_;
};

}  // namespace

std::unique_ptr<Rendezvous> traced(Rendezvous& rendezvous, CallLog& log) {
  return std::make_unique<TracedRendezvous>(rendezvous, log);
}

}  // namespace mesh
}  // namespace heddle
