// The interface of a data-parallel strategy: where parameters, gradients and optimizer state live.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/mesh/device_mesh.h"
#include "heddle/model/unit.h"
#include "heddle/parallel/needs.h"
#include "heddle/parallel/shard.h"

namespace heddle {

// The units of one pipeline stage as one rank sees them. Owns shards, buckets and streams; starts no autograd
// of its own. Called from one thread.
class HEDDLE_API ParallelStage {
 public:
  virtual ~ParallelStage();
  // Runs the stage's units on one microbatch.
  virtual Tensors forward(Tensors inputs, const Batch& batch) = 0;
  virtual void unshard() = 0;  // hints from the schedule; forward works without them
  virtual void reshard() = 0;
  // The next backward of this stage is the step's last one: it completes the gradients, and reductions may
  // start. Where backwards are split (Batch::weight_gradients) it comes before the last drain of a queue.
  virtual void expect_last_backward() = 0;
  // Returns when the gradient of every owned shard is final: the sum over the data-parallel ranks and all
  // microbatches of the step, in shard.tensor.grad(); undefined where no rank had one. The optimizer may
  // scale it in place, and resets it to undefined after the update.
  virtual void finish_gradients() = 0;
  // Every gradient of this step is there: starts what is left of the reductions, and returns at once. Called
  // after the last backward, or not at all: finish_gradients() completes everything by itself. By default
  // nothing happens.
  virtual void reduce_gradients();
  // This rank's shards, in execution order; a tied parameter once. Empty shards (numel 0) are listed too.
  virtual std::span<Shard> owned() = 0;
  // Called after the optimizer changed the owned shards.
  virtual void parameters_changed() = 0;
};

// Constructed from its config alone (words: no tensor, no group), and used once the mesh stands.
class HEDDLE_API IStrategy {
 public:
  virtual ~IStrategy();
  virtual Needs needs() const = 0;
  // Takes the units over. Parameters on meta get storage here and values from core later; others are copied
  // from.
  virtual std::unique_ptr<ParallelStage> parallelize(Units units, const DeviceMesh& mesh,
                                                     std::span<const Placed> placed) = 0;
};

}  // namespace heddle
