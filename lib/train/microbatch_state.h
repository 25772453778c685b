// What is alive of one microbatch on one stage, between its forward and the end of its backward.
#pragma once

#include <torch/csrc/autograd/edge.h>

#include <memory>
#include <vector>

#include "heddle/model/batch.h"
#include "heddle/model/unit.h"
#include "heddle/nn/weight_gradients.h"
#include "heddle/parallel/strategy.h"
#include "lib/train/wires.h"

namespace heddle::train {

// The outputs themselves are not kept: a backward starts from their edges in the graph, so their memory is
// freed once they are sent and autograd does not need it.
struct MicrobatchState {
  Batch batch;
  Arriving arriving;                         // the inputs, in flight from another rank
  Tensors inputs;                            // leaves; their gradients are sent back
  Tensors outputs;                           // until they are sent
  std::vector<torch::autograd::Edge> roots;  // of the outputs that need a gradient
  Arriving returning;                        // the gradients of those, in flight
  Tensors gradients;                         // of the outputs, from a stage on this rank
  Tensors input_gradients;                   // until they are sent
  std::unique_ptr<WeightGradients> weights;  // made if the schedule splits the backward; reused
};

// One of this rank's stages and its neighbours.
struct LocalStage {
  ParallelStage* stage = nullptr;
  int index = 0;                   // in the model
  bool first = true, last = true;  // of the model
  int before = -1, after = -1;     // indices of the neighbours among this rank's stages; -1: on another rank
  std::vector<MicrobatchState> microbatches;  // [microbatch]
};

}  // namespace heddle::train
