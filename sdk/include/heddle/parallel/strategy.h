// The interface of a data-parallel strategy: where parameters, gradients and optimizer state live.
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

// A parameter as the model computes with it. Under tensor parallelism it is this rank's part.
struct WholeParameter {
  std::string name;
  at::Tensor tensor;  // valid until release_whole()
};

// The dtypes in which a host runs a unit. Empty: tensors keep their dtypes.
struct UnitPrecision {
  std::optional<at::ScalarType> inputs;  // floating-point inputs are cast to it
  std::optional<at::ScalarType>
      outputs;  // floating-point results are cast to it, except a loss of one element
};

// Why core calls ParallelStage::parameters_changed().
enum class ParametersChange {
  begun,    // parameters have their first values, or those of files: state() begins anew
  resumed,  // parameters and state() have the values of a checkpoint
  updated   // an optimizer has changed the parameters, or has left out an update
};

// The units of one pipeline stage as one rank sees them. Owns shards, buckets and streams; starts no autograd
// of its own. Called from one thread. The first four functions are what every strategy needs. The others have
// defaults that are correct for a stage with whole parameters that reduces in finish_gradients().
class HEDDLE_API ParallelStage {
 public:
  virtual ~ParallelStage();
  // Runs the stage's units on one microbatch. A stage of a built model refuses it (Error{input}) where the
  // pipeline has several stages and no schedule runs: heddle::Step runs it.
  virtual Tensors forward(Tensors inputs, const Batch& batch) = 0;
  // Returns when the gradient of every owned shard is final: the sum over the data-parallel ranks and all
  // microbatches of the step, in shard.tensor.grad(); undefined where no rank had one. A strategy that
  // averages while it reduces multiplies here by the number that it divided by. The optimizer scales
  // and detaches the gradient in place (not allowed on an autograd view: detach() it), and then resets it to
  // undefined. Of a built model, core adds the sums over Shard::partial here: a host's own loop gets what
  // Step gets. A strategy leaves those to core.
  virtual void finish_gradients() = 0;
  // This rank's shards, in execution order; a tied parameter once. Empty shards (numel 0) are listed too.
  // A parameter that is cut in the middle of a row is listed as several boxes, each a shard of that name.
  virtual std::span<Shard> owned() = 0;
  // Called after core wrote to the owned shards.
  virtual void parameters_changed(ParametersChange change) = 0;

  // What the stage keeps from one step to the next beside parameters: error feedback, a momentum of its own,
  // the parameters at the last synchronisation, a count of steps. Checkpoints save it and a run that resumes
  // reads it, before parameters_changed(resumed). Boxes of a parameter (box_state) are read by any other
  // ranks; what each rank has of its own (rank_state) by as many ranks alone, and others are refused by name.
  // The same names and sizes as long as the stage lives. The default has none.
  virtual std::vector<StateTensor> state();

  // Hints from the schedule, for stages that gather parameters. forward() works without them.
  virtual void unshard();  // a forward of this stage comes soon
  virtual void reshard();  // none comes soon: free whole parameters

  // Hints from the runner of the backwards, for stages that reduce while a backward runs. finish_gradients()
  // gives the same numbers without them.
  // The next backward of this stage is the step's last one: it completes the gradients, and reductions may
  // start. Where backwards are split (Batch::weight_gradients) it comes before the last drain of a queue.
  virtual void expect_last_backward();
  // Every gradient of this step is complete: starts the remaining reductions and returns at once.
  virtual void reduce_gradients();

  // Whether restart_step() works. A strategy whose Needs::may_use has "post_validation" returns true.
  virtual bool can_restart() const;
  // The step under way begins anew: its forwards so far get no backward, and their graphs are gone. No
  // backward of the step has run. parameters_changed() may follow. Throws Error{internal} unless
  // can_restart().
  virtual void restart_step();

  // Gathers whole parameters until release_whole(): for sampling and for reading them between two steps. Only
  // forwards without gradients may run meanwhile. Called by all ranks of the strategy's axes. The default
  // returns the owned shards: a stage whose shards are parts of parameters overrides both functions.
  virtual std::vector<WholeParameter> hold_whole();
  virtual void release_whole();  // neither communicates nor throws

  // Forwards that a host drives: a model with a forward of its own runs the units in its own order and says
  // where each begins and ends. Units are numbered as in parallelize(); their Unit::forward is not called.
  // forward() and these functions are not mixed in one stage.
  // Whether the functions below work. False: begin_forward() throws Error{input}.
  virtual bool can_host_forward() const;
  // A forward of one microbatch begins. Whether gradients are enabled here holds for the whole forward.
  virtual void begin_forward(const Batch& batch);
  // The unit is about to run: its parameters are whole from here on. Units may be nested, as a root with
  // others inside. Also called, outside of a forward, for a unit that a backward recomputes.
  virtual void before(size_t unit);
  // The unit has run. `outputs`: every tensor of its result that requires a gradient, of any shape.
  virtual void after(size_t unit, const Tensors& outputs);
  virtual void end_forward();
  // The host's forward threw: frees what was gathered and ends the forward. Communicates with no rank.
  virtual void abandon_forward() noexcept;
  // The dtypes in which the host runs a unit, and the dtype of autocast for the whole forward; empty: none.
  virtual UnitPrecision unit_precision(size_t unit) const;
  virtual std::optional<at::ScalarType> autocast() const;
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
  // The plugin that failures of the stages are attributed to. The engine overrides it; a plugin does not.
  virtual Author author() const;
};

}  // namespace heddle
