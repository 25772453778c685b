// A rendezvous that writes down every collective before passing it on.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "heddle/mesh/communicator.h"
#include "heddle/mesh/rendezvous.h"

namespace heddle::tests {

using Events = std::vector<std::string>;

// Lines such as "all_gather dp_shard 1024": the call, the group, the elements of the larger tensor.
class RecordingCommunicator : public Communicator {
 public:
  RecordingCommunicator(std::unique_ptr<Communicator> inner, Events* events)
      : inner_(std::move(inner)), events_(events) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  const std::string& name() const override { return inner_->name(); }
  std::unique_ptr<Work> all_gather(at::Tensor out, at::Tensor in) override {
    note("all_gather", out);
    return inner_->all_gather(out, in);
  }
  std::unique_ptr<Work> reduce_scatter(at::Tensor out, at::Tensor in, Reduce reduce) override {
    note("reduce_scatter", in);
    return inner_->reduce_scatter(out, in, reduce);
  }
  std::unique_ptr<Work> all_reduce(at::Tensor inout, Reduce reduce) override {
    note("all_reduce", inout);
    return inner_->all_reduce(inout, reduce);
  }
  std::unique_ptr<Work> all_to_all(at::Tensor out, at::Tensor in, std::span<const int64_t> out_rows,
                                   std::span<const int64_t> in_rows) override {
    note("all_to_all", in);
    return inner_->all_to_all(out, in, out_rows, in_rows);
  }
  std::unique_ptr<Work> broadcast(at::Tensor inout, int root) override {
    note("broadcast", inout);
    return inner_->broadcast(inout, root);
  }
  std::unique_ptr<Work> send(at::Tensor tensor, int peer, int tag) override {
    return inner_->send(tensor, peer, tag);
  }
  std::unique_ptr<Work> receive(at::Tensor tensor, int peer, int tag) override {
    return inner_->receive(tensor, peer, tag);
  }

 private:
  void note(const char* call, const at::Tensor& tensor) {
    if (events_ != nullptr)
      events_->push_back(std::string(call) + " " + inner_->name() + " " + std::to_string(tensor.numel()));
  }
  std::unique_ptr<Communicator> inner_;
  Events* events_;
};

class RecordingRendezvous : public Rendezvous {
 public:
  RecordingRendezvous(Rendezvous& inner, Events* events) : inner_(inner), events_(events) {}
  int rank() const override { return inner_.rank(); }
  int world_size() const override { return inner_.world_size(); }
  int local_rank() const override { return inner_.local_rank(); }
  int local_world_size() const override { return inner_.local_world_size(); }
  const Log& log() const override { return inner_.log(); }
  std::string hold_meeting(const std::string& key, const std::string& text, const Answer& answer) override {
    return inner_.hold_meeting(key, text, answer);
  }
  std::unique_ptr<Communicator> group(const std::string& name, std::span<const int> ranks) override {
    return std::make_unique<RecordingCommunicator>(inner_.group(name, ranks), events_);
  }

 private:
  Rendezvous& inner_;
  Events* events_;
};

}  // namespace heddle::tests
