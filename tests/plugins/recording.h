// A rendezvous that records every collective before it passes the call on.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/mesh/wrapped.h"
#include "heddle/mesh/rendezvous.h"

namespace heddle::tests {

using Events = std::vector<std::string>;

// Records lines such as "all_gather dp_shard 1024": the call, the group, and the elements of the larger
// tensor. Transfers are not recorded.
class RecordingCommunicator : public mesh::WrappedCommunicator {
 public:
  RecordingCommunicator(std::unique_ptr<Communicator> inner, Events* events)
      : WrappedCommunicator(std::move(inner)), events_(events) {}

 private:
  std::unique_ptr<Work> run(const mesh::GroupCall& call, Post post) override {
    if (events_ != nullptr && call.peer < 0)
      events_->push_back(std::string(call.name) + " " + name() + " " + std::to_string(call.tensor.numel()));
    return post();
  }

  Events* events_;
};

class RecordingRendezvous : public WrappedRendezvous {
 public:
  RecordingRendezvous(Rendezvous& inner, Events* events) : WrappedRendezvous(inner), events_(events) {}
  std::unique_ptr<Communicator> group(const std::string& name, std::span<const int> ranks) override {
    return std::make_unique<RecordingCommunicator>(inner().group(name, ranks), events_);
  }

 private:
  Events* events_;
};

}  // namespace heddle::tests
