// AdamW and Adam over this rank's shards, with fused kernels (Kingma and Ba 2015; Loshchilov and Hutter
// 2019).
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/parallel/optimizer.h"
#include "heddle/train/step.h"

namespace heddle::train {

// State has the dtype of the weight. A shard whose gradient is undefined is left alone, and its step is not
// counted.
class HEDDLE_API AdamW : public IOptimizer {
 public:
  // lr and weight_decay of the config are not used.
  explicit AdamW(const AdamWConfig& config) : config_(config) {}

  void start(std::span<const TrainedShard> shards, const DeviceMesh& mesh) override;
  // Returns the state of each non-empty shard: exp_avg and exp_avg_sq (same box as the shard), and step (a
  // scalar).
  std::vector<OptimizerState> state() override;
  // Reads neither divisor nor skip on the host where the weights are on a device.
  void update(const OptimizerUpdate& update) override;
  bool takes_divisor_and_skip() const override { return true; }
  bool can_undo() const override { return true; }

 private:
  struct Group {  // shards of one multiplier, dtype and device, as the GPU kernels need; the lists
                  // have one order
    double lr_mult = 1, wd_mult = 1;
    std::vector<const Shard*> shards;
    std::vector<at::Tensor> weights, averages, squares, steps;
    at::Tensor all_steps;  // `steps` are its elements
  };
  struct Rates {  // of one update of one group
    double lr, weight_decay;
    bool coupled;  // decay is added to the gradient
    at::Tensor divisor, skip;
  };
  Group& group_for(const TrainedShard& shard);
  void update_group(Group& group, const Rates& rates);
  void run_kernel(at::TensorList weights, at::TensorList gradients, at::TensorList averages,
                  at::TensorList squares, at::TensorList steps, const Rates& rates) const;
  template <class Number>
  void run_on_cpu(const at::Tensor& weight, const at::Tensor& gradient, const at::Tensor& average,
                  const at::Tensor& square, const at::Tensor& steps, const Rates& rates) const;

  const AdamWConfig config_;
  std::vector<Group> groups_;
};

}  // namespace heddle::train
