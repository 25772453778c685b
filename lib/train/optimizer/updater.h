// Around any optimizer: groups of parameters, master copies, the order of an update, and taking it back.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/parallel/optimizer.h"
#include "heddle/train/step.h"

namespace heddle::train {

class HEDDLE_API Updater {
 public:
  // Starts the optimizer, which outlives it, with the shards that require a gradient. `config`: groups and
  // master_weights. Throws Error{config} for an invalid regular expression.
  Updater(std::span<Shard* const> shards, const DeviceMesh& mesh, const StepConfig& config,
          IOptimizer& optimizer);

  // One update; gradients are reset to undefined. `update` may have a divisor and a skip for any optimizer,
  // but the skip is read here, which waits for the device, unless the optimizer takes it.
  void update(const OptimizerUpdate& update);
  // Resets the gradients to undefined and changes nothing else.
  void drop_gradients();
  // Records what update() would read and write (heddle/ops/compute_log.h), in one call.
  void record_update() const;

  // Copies what the next update changes, so that undo() can take it back. `state`: weights and the
  // optimizer's state; `gradients`: those, for an update after undo(). Only where IOptimizer::can_undo().
  void keep(bool state, bool gradients);
  // Puts back what keep() has copied, bit for bit.
  void undo();

  // Returns for each non-empty trained shard the optimizer's tensors and, last, the master copy, "master".
  std::vector<OptimizerState> state() const;
  IOptimizer& optimizer() const { return optimizer_; }

 private:
  struct Kept {  // made when first used
    std::vector<at::Tensor> state, copies, gradients;
    std::vector<char> had;  // a gradient
    bool has_state = false;
  };
  void keep_gradients();
  void store_masters(bool without_gradient) const;

  IOptimizer& optimizer_;
  std::vector<Shard*> shards_;         // of `trained_`, in the same order
  std::vector<TrainedShard> trained_;  // not moved after the constructor
  Kept kept_;
};

}  // namespace heddle::train
