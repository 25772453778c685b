// The interface of an optimizer: the shards that it trains, its state as boxes of parameters, an update.
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

// A shard that requires a gradient. One of no elements is listed too: its rank takes part in collectives
// along Shard::axes.
struct HEDDLE_API TrainedShard {
  const Shard* shard = nullptr;  // its tensor.grad() is the gradient; undefined where no rank has one
  // What an update changes: the shard's own tensor, or the fp32 copy that Step stores in the shard
  // afterwards.
  at::Tensor weight;
  double lr_mult = 1, wd_mult = 1;  // of its group (ParameterGroup)
  bool has_master() const { return !weight.is_alias_of(shard->tensor); }
};

struct HEDDLE_API OptimizerState {
  const Shard* shard = nullptr;
  std::vector<StateTensor> tensors;
  // Throws Error{internal} for a name that is not there.
  const at::Tensor& at(std::string_view name) const;
  bool has(std::string_view name) const;
};

struct OptimizerUpdate {
  double lr = 0, weight_decay = 0;
  at::Tensor divisor;  // fp32 [1]: gradients are divided by it; undefined: by 1
  at::Tensor skip;     // fp32 [1]: 1 where nothing changes, else 0; undefined: 0
};

// An optimizer: a plugin's, or a host's own. Step reduces, clips and resets gradients, keeps master copies
// and checks for numbers that are not finite. An update depends on what the whole parameter and its gradient
// are, not on how they are split.
class HEDDLE_API IOptimizer {
 public:
  virtual ~IOptimizer();
  // Once, before the first update: takes the shards and makes the state, on the weights' devices (meta in a
  // dry world). The mesh lives as long as this. By default it takes none, and refuses master copies and
  // groups, which need it: Error{config}.
  virtual void start(std::span<const TrainedShard> shards, const DeviceMesh& mesh);
  // All that an update reads and changes besides weights. Values copied into these tensors continue a run
  // with the same bits. By default none: checkpoints hold nothing of this optimizer.
  virtual std::vector<OptimizerState> state();
  // Changes the weights by the gradients. A shard whose gradient is undefined stays as it is. A gradient may
  // have another dtype than the weight. The same on every rank: lr, weight_decay, skip.
  virtual void update(const OptimizerUpdate& update) = 0;
  // False: Step divides the gradients, reads `skip` and leaves the update out where it is 1, which waits for
  // the device; both are undefined in update(). True: update() does what they say, and nothing waits.
  virtual bool takes_divisor_and_skip() const { return false; }
  // Whether Step may take an update back by copies of weights and state() (PipelineConfig::post_validation):
  // state() is complete, and update() does not communicate.
  virtual bool can_undo() const { return false; }
  // Of the plugin's offer, for messages; the registry sets it. Empty: a host's.
  virtual std::string name() const { return ""; }
};

}  // namespace heddle
