// Finds parameters that had a gradient on any rank; the gradient of an unused parameter stays undefined.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "heddle/sharding/bucket.h"
#include "heddle/sharding/model.h"

namespace heddle::sharding {

// One number for each trainable parameter, its maximum over the ranks that share it, once a step; one message
// for all parameters with the same ranks. The numbers are on the CPU and are exchanged between hosts during
// the sums, so that nothing waits for a device.
class UsedParameters {
 public:
  // `groups`: for gradients without groups of their own.
  UsedParameters(const Model& model, const Groups& groups);

  void start();   // every gradient of the step was taken
  void finish();  // the shards' gradients are placed
  void abandon() noexcept;

 private:
  struct Part {
    Gradients* gradients;
    size_t count;
  };
  struct Sum {            // over the same ranks
    Communicator* ranks;  // null: one rank
    std::vector<Part> parts;
    at::Tensor mine, any;  // on the CPU
    std::vector<char> used;
    std::unique_ptr<Work> work;
  };
  Sum& sum_over(Communicator* ranks);

  std::vector<Sum> sums_;
};

}  // namespace heddle::sharding
