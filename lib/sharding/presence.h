// Which parameters had a gradient on any rank: one that nobody used stays without.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "heddle/sharding/model.h"

namespace heddle::sharding {

// One number for each trainable parameter, its maximum over the ranks, once a step. The numbers are the
// hosts' and go from host to host behind the sums, so that nothing of them waits for a device.
class Presence {
 public:
  // `ranks` may be null: one rank.
  Presence(const Model& model, Communicator* ranks);

  void start();   // every gradient of the step was taken
  void finish();  // the shards' gradients are placed
  void abandon() noexcept;

 private:
  struct Part {
    Gradients* gradients;
    size_t count;
  };
  std::vector<Part> parts_;
  Communicator* ranks_;
  at::Tensor mine_, any_;  // on the CPU
  std::vector<char> used_;
  std::unique_ptr<Work> work_;
};

}  // namespace heddle::sharding
