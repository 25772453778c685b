// IOptimizer, the interface of an optimizer: trained shards, optimizer state as boxes of parameters, update.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/mesh/device_mesh.h"
#include "heddle/parallel/shard.h"

namespace heddle {

// A shard that requires a gradient. Shards without elements are included, because their rank takes part in
// collectives along Shard::axes.
struct HEDDLE_API TrainedShard {
  const Shard* shard = nullptr;  // its tensor.grad() is the gradient; undefined if no rank has one
  // The tensor that an update modifies: the shard's tensor, or an fp32 copy that Step then casts into the
  // shard.
  at::Tensor weight;
  double lr_mult = 1, wd_mult = 1;  // factors of its ParameterGroup
  bool has_master() const { return !weight.is_alias_of(shard->tensor); }
};

// The optimizer state of one shard.
struct HEDDLE_API OptimizerState {
  const Shard* shard = nullptr;
  std::vector<StateTensor> tensors;
  // Returns the tensor with this name. Throws Error{internal} if there is none.
  const at::Tensor& at(std::string_view name) const;
  bool has(std::string_view name) const;
};

// The settings of one update.
struct OptimizerUpdate {
  double lr = 0, weight_decay = 0;
  at::Tensor divisor;  // fp32 [1]: divide gradients by it; undefined: 1
  at::Tensor skip;     // fp32 [1]: 1 to skip the update, else 0; undefined: 0
};

// An optimizer of a plugin or of a host. Step reduces, clips and resets gradients, keeps master copies and
// checks for non-finite values. The result of an update must depend only on the whole parameter and its
// gradient, not on how they are sharded.
class HEDDLE_API IOptimizer {
 public:
  virtual ~IOptimizer();
  // Takes the shards and creates the state on the devices of the weights (meta in a dry world). Called once,
  // before the first update. The mesh outlives the optimizer. The default ignores the shards and throws
  // Error{config} for master copies and parameter groups.
  virtual void start(std::span<const TrainedShard> shards, const DeviceMesh& mesh);
  // Returns everything that an update reads and modifies besides the weights. A run that resumes by copying
  // values into these tensors gets bitwise equal results. The default returns nothing, so checkpoints contain
  // no state of this optimizer.
  virtual std::vector<OptimizerState> state();
  // Updates the weights. A shard with an undefined gradient is unchanged. A gradient may have a different
  // dtype than its weight. lr, weight_decay and skip are equal on every rank.
  virtual void update(const OptimizerUpdate& update) = 0;
  // Returns whether update() applies OptimizerUpdate::divisor and skip itself, so that nothing waits for the
  // device. If false, Step divides the gradients, reads `skip`, which waits for the device, and skips the
  // update itself. Both are then undefined in update().
  virtual bool takes_divisor_and_skip() const { return false; }
  // Returns whether Step may undo an update by copies of the weights and state()
  // (PipelineConfig::post_validation). This requires that state() is complete and that update() does not
  // communicate.
  virtual bool can_undo() const { return false; }
  // Returns the plugin's name for messages, which the registry sets. Empty for a host's optimizer.
  virtual std::string name() const { return ""; }
};

}  // namespace heddle
