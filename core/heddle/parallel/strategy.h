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

// A parameter as the model computes with it. Under tensor parallelism it is this rank's part.
struct WholeParameter {
  std::string name;
  at::Tensor tensor;  // valid until release_whole()
};

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
  // microbatches of the step, in shard.tensor.grad(); undefined where no rank had one. The optimizer scales
  // and detaches it in place (an autograd view refuses that: detach() it), and then resets it to undefined.
  virtual void finish_gradients() = 0;
  // Every gradient of this step is there: starts what is left of the reductions, and returns at once. Called
  // after the last backward, or not at all: finish_gradients() completes everything by itself. By default
  // nothing happens.
  virtual void reduce_gradients();
  // This rank's shards, in execution order; a tied parameter once. Empty shards (numel 0) are listed too.
  // Where a parameter is cut in the middle of a row, several boxes of it are listed, each a shard of that
  // name.
  virtual std::span<Shard> owned() = 0;
  // Called after core wrote to the owned shards: their first values, a checkpoint's, or an update.
  virtual void parameters_changed() = 0;
  // What finish_gradients() divides the sums by (Megatron averages over the data-parallel ranks). Core
  // multiplies the gradient of the model's outputs by it in every backward, so gradients are of the loss all
  // the same, and a host does nothing. Read once, after parallelize(); alike on every rank; by default 1.
  virtual double gradient_divisor() const;

  // Parameters with what the data-parallel ranks hold of them together, until release_whole(): for sampling
  // and for reading them between two steps. Nothing but forwards without gradients may run meanwhile. Called
  // by all ranks of the strategy's axes. By default the owned shards: override it where they are parts.
  virtual std::vector<WholeParameter> hold_whole();
  virtual void release_whole();  // neither communicates nor throws
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
