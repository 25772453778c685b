// Posting to the engine, and the work that is waited for.
#include "lib/transport/shm/shm_communicator.h"

namespace heddle::mesh {
namespace {

class ShmWork : public Work {
 public:
  ShmWork(ShmEngine& engine, ShmGroup& group, std::shared_ptr<Pending> pending)
      : engine_(engine), group_(group), pending_(std::move(pending)) {}

  void wait() override {
    engine_.wait(group_, *pending_);  // under its lock: the helper may return the call meanwhile
    if (pending_->instead) pending_->instead->wait();
  }
  bool done() const override { return engine_.done(*pending_); }

 private:
  ShmEngine& engine_;
  ShmGroup& group_;
  std::shared_ptr<Pending> pending_;
};

}  // namespace

ShmCommunicator::ShmCommunicator(ShmGroupPlace place, ShmEngine& engine)
    : CheckedCommunicator(place.name, place.rank, static_cast<int>(place.ranks.size())),
      engine_(engine),
      group_(engine.group(std::move(place))) {}

ShmCommunicator::~ShmCommunicator() {
  engine_.forget(std::move(group_));
}

std::unique_ptr<Work> ShmCommunicator::post(Call call) {
  check_cpu(call, name());
  auto pending = std::make_shared<Pending>(Pending{std::move(call)});
  engine_.post(*group_, pending);
  return std::make_unique<ShmWork>(engine_, *group_, std::move(pending));
}

}  // namespace heddle::mesh
