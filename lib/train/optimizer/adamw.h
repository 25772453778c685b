// AdamW over this rank's shards (Loshchilov and Hutter 2019), with fused kernels.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/parallel/shard.h"
#include "heddle/train/step.h"

namespace heddle::train {

// State has the dtype of the shard, or fp32 beside an fp32 master copy where `master_weights` asks for it and
// the shard's dtype is lower. A shard whose gradient is undefined is left alone, and its step is not counted.
class HEDDLE_API AdamW {
 public:
  // Throws Error{config} for an invalid regular expression.
  AdamW(std::span<Shard* const> shards, const StepConfig& config);

  // One update. Gradients are first divided by `divisor` (fp32 [1]; undefined: 1), then reset to undefined.
  // Where `skip` (fp32 [1], which a GPU's host does not read; undefined: 0) is 1, nothing else changes.
  void update(double lr, double weight_decay, const at::Tensor& divisor, const at::Tensor& skip = {});
  // Resets the gradients to undefined and changes nothing else.
  void drop_gradients();

  // Copies what the next update changes, so that undo() can take it back. `state`: weights, averages and
  // steps; `gradients`: those, for an update after undo().
  void keep(bool state, bool gradients);
  // Puts back what keep() has copied, bit for bit.
  void undo();

  // Of every non-empty trainable shard.
  std::vector<OptimizerState> state() const;

 private:
  struct Kept {  // made when first used
    std::vector<at::Tensor> weights, averages, squares, gradients;
    at::Tensor all_steps;
    std::vector<char> had;  // a gradient
    bool state = false;
  };
  struct Group {  // shards of one multiplier, dtype and device, as the GPU kernels need; the lists
                  // have one order
    double lr_mult = 1, wd_mult = 1;
    std::vector<Shard*> shards;
    std::vector<at::Tensor> weights, averages, squares,
        steps;             // weights: the master copies where there are any
    at::Tensor all_steps;  // `steps` are its elements
    Kept kept;
  };
  static void keep_gradients(Group& group);
  static void undo(Group& group);
  static void store_weights(Group& group, size_t i);
  Group& group_for(const Shard& shard, double lr_mult, double wd_mult);
  void add_state(Group& group, Shard& shard);
  struct Rates {  // of one update of one group
    double lr, weight_decay;
    at::Tensor divisor, skip;
  };
  void update_group(Group& group, const Rates& rates);
  void run_kernel(at::TensorList weights, at::TensorList gradients, at::TensorList averages,
                  at::TensorList squares, at::TensorList steps, const Rates& rates) const;
  void run_on_cpu(at::TensorList weights, at::TensorList gradients, at::TensorList averages,
                  at::TensorList squares, at::TensorList steps, const Rates& rates) const;

  StepConfig config_;
  std::vector<Group> groups_;
};

}  // namespace heddle::train
