// Interfaces that a stage may implement besides ParallelStage; looked up once after parallelize().
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/parallel/strategy.h"

namespace heddle {

// For stages that gather parameters. Hints from the schedule; forward() works without them.
class HEDDLE_API GatherHints {
 public:
  virtual ~GatherHints();
  virtual void unshard() = 0;  // a forward of this stage comes soon
  virtual void reshard() = 0;  // none comes soon: free whole parameters
};

// For stages that reduce while a backward runs. Hints from the runner of the backwards; finish_gradients()
// gives the same numbers without them.
class HEDDLE_API ReductionHints {
 public:
  virtual ~ReductionHints();
  // The next backward of this stage is the step's last one: it completes the gradients, and reductions may
  // start. Where backwards are split (Batch::weight_gradients) it comes before the last drain of a queue.
  virtual void expect_last_backward() = 0;
  // Every gradient of this step is complete: starts the remaining reductions and returns at once.
  virtual void reduce_gradients() = 0;
};

// For stages that average gradients and do not sum them.
class HEDDLE_API GradientAverage {
 public:
  virtual ~GradientAverage();
  // What finish_gradients() divides the sums by (Megatron averages over the data-parallel ranks). Core
  // multiplies the gradient of the model's outputs by it in every backward, so gradients are still those of
  // the loss, and a host does nothing. Read once, after parallelize(); the same on every rank.
  virtual double gradient_divisor() const = 0;
};

// For stages that can forget forwards. A strategy whose Needs::may_use has "post_validation" implements it.
class HEDDLE_API StepRestart {
 public:
  virtual ~StepRestart();
  // The step under way begins anew: its forwards so far get no backward, and their graphs are gone. No
  // backward of the step has run. parameters_changed() may follow.
  virtual void restart_step() = 0;
};

// A parameter as the model computes with it. Under tensor parallelism it is this rank's part.
struct WholeParameter {
  std::string name;
  at::Tensor tensor;  // valid until release_whole()
};

// For stages whose owned shards are parts of parameters.
class HEDDLE_API WholeParameters {
 public:
  virtual ~WholeParameters();
  // Gathers whole parameters until release_whole(): for sampling and for reading them between two steps. Only
  // forwards without gradients may run meanwhile. Called by all ranks of the strategy's axes.
  virtual std::vector<WholeParameter> hold_whole() = 0;
  virtual void release_whole() = 0;  // neither communicates nor throws
};

// The interfaces of one stage, looked up once; a call of one that the stage does not have does nothing. The
// stage outlives it.
class HEDDLE_API StageInterfaces {
 public:
  explicit StageInterfaces(ParallelStage& stage);

  void unshard() const {
    if (gathers_ != nullptr) gathers_->unshard();
  }
  void reshard() const {
    if (gathers_ != nullptr) gathers_->reshard();
  }
  void expect_last_backward() const {
    if (reductions_ != nullptr) reductions_->expect_last_backward();
  }
  void reduce_gradients() const {
    if (reductions_ != nullptr) reductions_->reduce_gradients();
  }
  bool restarts() const { return restart_ != nullptr; }
  void restart_step() const { restart_->restart_step(); }  // only where restarts()
  double gradient_divisor() const { return average_ == nullptr ? 1 : average_->gradient_divisor(); }
  std::vector<WholeParameter> hold_whole() const;  // without the interface: the owned shards
  void release_whole() const {
    if (whole_ != nullptr) whole_->release_whole();
  }

 private:
  ParallelStage* stage_;
  GatherHints* gathers_;
  ReductionHints* reductions_;
  const GradientAverage* average_;
  WholeParameters* whole_;
  StepRestart* restart_;
};

}  // namespace heddle
