// The side outputs of all ranks together, reduced with the loss.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "heddle/mesh/device_mesh.h"
#include "heddle/model/side_outputs.h"

namespace heddle::train {

// One sum over all ranks replaces the loss's own sums over data and stages; maxima cost one more collective.
// Of ranks with the same values all but one contribute zeros.
class SideTotals {
 public:
  // Throws Error{mesh} naming the output, for an axis that the mesh does not have or has only parts of.
  SideTotals(std::shared_ptr<const SideLayout> layout, const DeviceMesh& mesh);

  // Begins with this rank's sum of token losses (fp64 [1]) and side outputs.
  void start(const at::Tensor& loss, const SideOutputs& mine);
  // Of what losses are divided by: the counts of the whole step.
  struct Counts {
    double label_tokens = 0, microbatches = 0;
  };
  // Waits and returns the values; `loss` becomes the sum over all ranks.
  SideValues finish(const Counts& counts, at::Tensor& loss);

 private:
  std::shared_ptr<const SideLayout> layout_;
  Communicator* ranks_;       // of the world; null: one
  std::vector<bool> counts_;  // [entry]: this rank's part counts
  bool loss_counts_;
  at::Tensor sums_, maxima_;
  std::unique_ptr<heddle::Work> summing_, finding_;
};

}  // namespace heddle::train
