// Which parameters had a gradient on any rank: one that nobody used stays without.
#pragma once

#include <ATen/core/Tensor.h>

#include <deque>
#include <memory>

#include "gradients.h"

namespace heddle::megatron_fsdp {

// One number for each parameter, its maximum over the ranks, once a step. The numbers are the hosts' and go
// from host to host behind the sums, so that nothing of them waits for a device.
class Presence {
 public:
  // `ranks` may be null: one rank.
  Presence(const std::deque<Gradients>& gradients, Communicator* ranks);

  void start();                                   // every gradient of the step has been collected
  void finish(std::deque<Gradients>& gradients);  // the shards' gradients are placed

 private:
  const std::deque<Gradients>* gradients_;
  Communicator* ranks_;
  at::Tensor mine_, any_;  // mine: on the CPU
  std::unique_ptr<Work> work_;
};

}  // namespace heddle::megatron_fsdp
