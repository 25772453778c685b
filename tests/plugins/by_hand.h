// Runs one step of a stage in a given order of forwards and whole or split backwards.
#pragma once

#include <ATen/TensorOperators.h>
#include <torch/csrc/autograd/autograd.h>

#include <deque>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "heddle/nn/weight_gradients.h"
#include "heddle/parallel/strategy.h"

namespace heddle::tests {

// order: such as "F0 F1 I0 B1 W0": forward, whole backward, backward of inputs and then of weights, each with
// its microbatch. Ends with the calls that follow the last backward of a stage. The caller calls
// finish_gradients.
inline void run_by_hand(ParallelStage& stage, std::span<const Batch> microbatches, const std::string& order) {
  std::deque<WeightGradients> queues(microbatches.size());
  std::vector<at::Tensor> losses(microbatches.size());
  std::istringstream words(order);
  for (std::string word; words >> word;) {
    const size_t which = std::stoul(word.substr(1));
    const bool last = words.rdbuf()->in_avail() == 0;
    if (last && (word[0] == 'B' || word[0] == 'W')) stage.expect_last_backward();
    if (word[0] == 'F') {
      Batch batch = microbatches[which];
      if (order.find("W" + word.substr(1)) != order.npos) batch.weight_gradients = &queues[which];
      losses[which] = (stage.forward({}, batch)[0] / 50.0).sum();
    } else if (word[0] == 'W') {
      queues[which].drain();
    } else {
      if (word[0] == 'I') queues[which].defer();
      torch::autograd::backward({losses[which]}, {});
      losses[which].reset();
    }
  }
  stage.reduce_gradients();
}

}  // namespace heddle::tests
