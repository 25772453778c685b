// The interface of a data-parallel strategy, which owns parameters, gradients and optimizer state.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/base/export.h"
#include "heddle/mesh/device_mesh.h"
#include "heddle/model/unit.h"
#include "heddle/parallel/needs.h"
#include "heddle/parallel/shard.h"

namespace heddle {

// A parameter as the model computes with it. With tensor parallelism it is this rank's part.
struct WholeParameter {
  std::string name;
  at::Tensor tensor;  // valid until release_whole()
};

// Dtypes in which a host runs a unit. Empty: no cast.
struct UnitPrecision {
  std::optional<at::ScalarType> inputs;  // dtype to which floating-point inputs are cast
  std::optional<at::ScalarType>
      outputs;  // dtype to which floating-point results are cast, except a loss of one element
};

// The reason for a call of ParallelStage::parameters_changed().
enum class ParametersChange {
  begun,    // parameters have initial values or those of a model's files; state() starts anew
  resumed,  // parameters and state() have the values of a checkpoint
  updated   // an optimizer updated the parameters or skipped the update
};

// The units of one pipeline stage on one rank. Owns shards, buckets and streams, and starts no autograd
// itself. Called from one thread. Every strategy implements the first four functions. The defaults of the
// other functions are correct for a stage with whole parameters that reduces in finish_gradients().
class HEDDLE_API ParallelStage {
 public:
  virtual ~ParallelStage();
  // Runs the units of the stage on one microbatch. In a pipeline of several stages a built stage throws
  // Error{input} unless a schedule runs (heddle::Step runs it).
  virtual Tensors forward(Tensors inputs, const Batch& batch) = 0;
  // Completes the gradient of every owned shard: the sum over data-parallel ranks and all microbatches of the
  // step, in shard.tensor.grad(), or undefined if no rank has one. A strategy whose reductions average
  // multiplies by the divisor here. The optimizer scales and detaches the gradient in place, so it must not
  // be an autograd view (detach() it), and then resets it to undefined. In a built model, core then adds the
  // sums over Shard::partial, which a strategy leaves to core; so a host's own loop gets the same gradients
  // as Step.
  virtual void finish_gradients() = 0;
  // Returns this rank's shards in execution order, including empty shards (numel 0), with a tied parameter
  // once. A parameter that is split within a row has several boxes, each a shard with the same name.
  virtual std::span<Shard> owned() = 0;
  // Called after core wrote to the owned shards.
  virtual void parameters_changed(ParametersChange change) = 0;

  // Returns what the stage keeps from one step to the next besides parameters: error feedback, a momentum of
  // its own, the parameters at the last synchronization, a number of steps. Checkpoints contain it, and a run
  // that resumes reads it before parameters_changed(resumed). State made by box_state() can be read by any
  // number of ranks, state made by rank_state() only by the same number: other ranks are refused with the
  // name. Names and sizes must not change while the stage exists. The default returns nothing.
  virtual std::vector<StateTensor> state();

  // Hints of the schedule for stages that gather parameters. forward() must work without them.
  virtual void unshard();  // a forward of this stage comes soon
  virtual void reshard();  // no forward comes soon: free whole parameters

  // Hints of the runner of backwards for stages that reduce during the backward. finish_gradients() must give
  // the same result without them.
  // The next backward of this stage is the last one of the step and completes the gradients, so reductions
  // may start. With split backwards (Batch::weight_gradients) it is called before the last drain of a queue.
  virtual void expect_last_backward();
  // All gradients of this step are complete. Starts the remaining reductions without waiting.
  virtual void reduce_gradients();

  // Returns whether restart_step() works. Must be true for a strategy whose Needs::may_use has
  // "post_validation".
  virtual bool can_restart() const;
  // Restarts the current step: no backward has run, and the forwards so far get none, because their graphs
  // are freed. parameters_changed() may follow. Throws Error{internal} unless can_restart().
  virtual void restart_step();

  // Gathers whole parameters until release_whole(), for generation and for reading parameters between two
  // steps. Meanwhile only forwards without gradients may run. Called by all ranks of the strategy's axes. The
  // default returns the owned shards; a stage whose shards are parts of parameters overrides both functions.
  virtual std::vector<WholeParameter> hold_whole();
  virtual void release_whole();  // neither communicates nor throws

  // Forwards that a host drives: a model with its own forward runs the units in its own order and reports
  // their beginning and end. Units are indexed as in parallelize(), and their Unit::forward() is not called.
  // A stage uses either forward() or these functions.
  // Returns whether the functions below work. If false, begin_forward() throws Error{input}.
  virtual bool can_host_forward() const;
  // Begins the forward of one microbatch. Gradients must be enabled or disabled for the whole forward.
  virtual void begin_forward(const Batch& batch);
  // Makes the parameters of a unit whole before the unit runs. Units may be nested, such as a root that
  // contains the others. Also called outside of a forward, for a unit that a backward recomputes.
  virtual void before(size_t unit);
  // Called after the unit has run. outputs: all tensors of its result that require a gradient, of any shape.
  virtual void after(size_t unit, const Tensors& outputs);
  virtual void end_forward();
  // Called after the host's forward threw: frees gathered parameters and ends the forward without
  // communication.
  virtual void abandon_forward() noexcept;
  // Return the dtypes in which the host runs a unit, and the autocast dtype for the whole forward; empty:
  // none.
  virtual UnitPrecision unit_precision(size_t unit) const;
  virtual std::optional<at::ScalarType> autocast() const;
};

// A strategy is constructed from its configuration, without tensors or groups, and used once the mesh exists.
class HEDDLE_API IStrategy {
 public:
  virtual ~IStrategy();
  virtual Needs needs() const = 0;
  // Builds a stage and takes ownership of the units. Parameters on meta get storage here and values from core
  // later. Other parameters are copied; if ranks have different values, those of the first data-parallel rank
  // are used.
  virtual std::unique_ptr<ParallelStage> parallelize(Units units, const DeviceMesh& mesh,
                                                     std::span<const Placed> placed) = 0;
  // Returns the plugin to which failures of the stages are attributed. Overridden by the engine, not by
  // plugins.
  virtual Author author() const;
};

}  // namespace heddle
