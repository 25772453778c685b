// The interface of a data-parallel strategy: where parameters, gradients and optimizer state live.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/mesh/device_mesh.h"
#include "heddle/model/unit.h"
#include "heddle/parallel/needs.h"
#include "heddle/parallel/shard.h"

namespace heddle {

// The units of one pipeline stage as one rank sees them. Owns shards, buckets and streams; starts no autograd
// of its own. Called from one thread. Functions that only some strategies need are in interfaces of their
// own, which the stage implements besides this one (heddle/parallel/stage_interfaces.h).
class HEDDLE_API ParallelStage {
 public:
  virtual ~ParallelStage();
  // Runs the stage's units on one microbatch. A stage of a built model refuses it (Error{input}) where the
  // pipeline has several stages and no schedule runs: heddle::Step runs it.
  virtual Tensors forward(Tensors inputs, const Batch& batch) = 0;
  // Returns when the gradient of every owned shard is final: the sum over the data-parallel ranks and all
  // microbatches of the step, in shard.tensor.grad(); undefined where no rank had one. The optimizer scales
  // and detaches it in place (not allowed on an autograd view: detach() it), and then resets it to undefined.
  // Of a built model, core adds the sums over Shard::partial here: a host's own loop gets what Step gets. A
  // strategy leaves those to core.
  virtual void finish_gradients() = 0;
  // This rank's shards, in execution order; a tied parameter once. Empty shards (numel 0) are listed too.
  // A parameter that is cut in the middle of a row is listed as several boxes, each a shard of that name.
  virtual std::span<Shard> owned() = 0;
  // Called after core wrote to the owned shards: their first values, a checkpoint's, or an update.
  virtual void parameters_changed() = 0;
};

// Constructed from its configuration alone (no tensor, no group), and used once the mesh exists.
class HEDDLE_API IStrategy {
 public:
  virtual ~IStrategy();
  virtual Needs needs() const = 0;
  // Takes ownership of the units. Parameters on meta get storage here and values from core later; the values
  // of others are copied, those of the first data-parallel rank where ranks hold different ones.
  virtual std::unique_ptr<ParallelStage> parallelize(Units units, const DeviceMesh& mesh,
                                                     std::span<const Placed> placed) = 0;
};

}  // namespace heddle
