// One optimizer step over this rank's stages: schedule, gradients, clipping, update, report. Also the
// gradient norm and clipping for a host's own loop.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/mesh/device_mesh.h"
#include "heddle/model/batch.h"
#include "heddle/model/side_outputs.h"
#include "heddle/parallel/build.h"
#include "heddle/parallel/optimizer.h"
#include "heddle/parallel/shard.h"
#include "heddle/schedule/schedule.h"

namespace heddle {

// Recorded times of a step, for traces and profiles.

// One executed action. Times are of the steady clock, which all processes of a machine share.
struct RanAction {
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;
  Action action;
  int call = 0;                 // index of the schedule's call in the step
  Time begin, ready, end;       // ready: when its inputs were available and its work began
  Clock::duration away = {};    // waiting time after ready in which the overlapped action ran
  std::thread::id thread = {};  // the thread that ran the action
  bool overlapped = false;      // whether it overlapped with the action before or after it
  // Time stamps of a dry step's ComputeRecorder (heddle/ops/compute_log.h), else -1.
  int64_t first_moment = -1, ready_moment = -1, last_moment = -1;
  Clock::duration work() const { return end - ready - away; }
};

// A part of a step that is not an action: "reduce", "norm" or "update".
struct RanPhase {
  const char* name;  // a string literal
  RanAction::Time begin, end;
  int64_t last_moment = -1;  // see RanAction::last_moment
};

// The recorded actions and phases of steps.
struct Recording {
  std::vector<RanAction> actions;
  std::vector<RanPhase> phases;
};

// AdamW (Loshchilov and Hutter 2019). Weight decay applies to every parameter.
struct AdamWConfig {
  double lr = 1e-4;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
  bool decoupled = true;  // false: Adam (Kingma and Ba 2015), which adds the decay to the gradient
  bool operator==(const AdamWConfig&) const = default;
};

// Factors for the parameters whose names contain a match of the regular expression. The first matching group
// applies.
struct ParameterGroup {
  std::string pattern;
  double lr_mult = 1.0, wd_mult = 1.0;
};

// Settings of a Step.
struct StepConfig {
  AdamWConfig optimizer;                 // used by a Step without an IOptimizer
  std::optional<double> max_norm = 1.0;  // empty disables clipping
  bool master_weights = false;           // whether to keep fp32 copies of shards stored in a lower dtype
  std::vector<ParameterGroup> groups;    // factors of lr and weight decay; empty: 1 for all parameters
  double norm_type = 2.0;                // p of the gradient norm; infinity for the maximum
  // Behaves as NeMo AutoModel's benchmarks: token losses are summed and not divided by their number, no norm
  // is measured, every update is applied, and routers keep their bias. The reported loss is still the mean.
  bool benchmark = false;
};

// The results of a step. They are tensors so that a step does not wait for the device; read them when they
// are logged. In a dry world (mesh/dry.h) all members keep their initial values. With
// PipelineConfig::post_validation the tensors get their values in the next Step::run() or in Step::settle().
struct HEDDLE_API StepReport {
  at::Tensor loss;       // fp64 [1]: sum of the token losses / number of label tokens, over the global batch
  at::Tensor grad_norm;  // fp64 [1]: norm over the whole model before clipping; undefined if not measured
  int64_t label_tokens = 0;  // number of label tokens in the global batch
  SideValues side_values;    // auxiliary losses and metrics over all ranks
  at::Tensor skip;  // fp32 [1]: 1 if the update was skipped, else 0; undefined if updates are never skipped

  // Returns whether the update was skipped because the loss is NaN or Inf, or because the norm is NaN, Inf or
  // too large to square in fp32. Equal on every rank. Waits for the device.
  bool skipped() const;
};

// Takes optimizer steps with the stages of one rank.
class HEDDLE_API Step {
 public:
  // Creates a step that updates with AdamW.
  Step(Stages& stages, const DeviceMesh& mesh, StepConfig config);
  // Creates a step that updates with an optimizer of a plugin or of the host, which outlives the step.
  // AdamWConfig is ignored. On a device each step waits for the norm, unless the optimizer
  // takes_divisor_and_skip(). Throws Error{config} with pp_post_validation unless the optimizer can_undo().
  Step(Stages& stages, const DeviceMesh& mesh, StepConfig config, IOptimizer& optimizer);
  ~Step();
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  // Runs forward and backward on this rank's batches, reduces and clips the gradients, and updates with `lr`.
  // Skips the update if the loss or the norm is not finite (StepReport::skipped). Each batch is one pass
  // through the pipeline schedule, which splits it into microbatches; without a pipeline each batch is one
  // microbatch. Gradients of several batches accumulate. Every rank of a pipeline gets the same batches.
  StepReport run(std::span<const Batch> batches, double lr, double weight_decay);
  // Settles an update under PipelineConfig::post_validation: waits for the gradient norm of all stages,
  // undoes and repeats the last update if it was wrong, and fills its report. Call settle() after the last
  // step, and before parameters or a report are read; run(), evaluate() and optimizer_state() call it
  // themselves. A collective of every rank. Without post_validation it does nothing.
  void settle();
  // Returns whether the last update awaits the next run() or settle(). Equal on every rank.
  bool unsettled() const;
  // Computes the loss without gradients, for validation.
  StepReport evaluate(std::span<const Batch> batches);

  // Returns the state of every non-empty trainable shard on this rank for which the optimizer has state, in
  // no particular order. AdamW has exp_avg and exp_avg_sq (same box as the shard), and step, the number of
  // updates so far (fp32 []). With StepConfig::master_weights, "master" is the fp32 copy.
  std::vector<OptimizerState> optimizer_state();

  // Returns the maximum number of microbatches alive at once on this rank, over its stages, since the
  // beginning.
  int peak_alive() const;
  // Records every action of the following steps. null (the default) disables recording.
  void record(Recording* recording);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Gradient norm and clipping over the shards of a whole model, as Step computes them, for a host's own loop.

namespace train {

// Returns AdamW (Adam if `decoupled` is false) with fused kernels, for plugins that train some parameters
// with it. Ignores lr and weight_decay of the config, which OptimizerUpdate has.
HEDDLE_API std::unique_ptr<IOptimizer> make_adamw(const AdamWConfig& config);

// The p-norm of all gradients of a model. Sums shards with equal axes together, then reduces each sum over
// these axes (Shard::axes) and over `pp`. The grouping is computed once, in the constructor.
class HEDDLE_API GradientNorm {
 public:
  // shards: Stages::shards() of this rank. norm_type: p of the p-norm, above 0; infinity for the maximum. A
  // collective of every rank.
  GradientNorm(std::span<Shard* const> shards, const DeviceMesh& mesh, double norm_type = 2.0);

  // Returns the norm of all gradients, fp64 [1]; undefined gradients count as zero. An Inf or NaN in any
  // gradient makes the norm Inf or NaN on every rank of the axes that split any shard. Finite gradients never
  // overflow: squares of fp32 values are summed in fp64, and other dtypes are scaled by the largest value
  // first. A collective of every rank, after finish_gradients().
  // `doubts` (fp64 [1], at least 0) is reduced over the same ranks in the same messages, and becomes positive
  // on every rank if it is positive on any. null: nothing is reduced.
  at::Tensor measure(at::Tensor* doubts = nullptr) const;
  // Returns the sum of squares of this rank's stages, fp64 [1]; measure() is the square root of its sum over
  // `pp`. Requires is_a_sum(). A collective of every rank along the other axes.
  at::Tensor squares_of_stages() const;
  // Returns whether the norm is the square root of one sum of squares. Other norms need the largest value
  // first.
  bool is_a_sum() const { return norm_type_ == 2.0 && fits_; }

 private:
  struct Group {
    std::vector<std::string> axes, differs;
    std::vector<Shard*> shards;
    std::vector<Communicator*> reduces, means;  // along `axes`, and along `differs`
  };
  void agree(const DeviceMesh& mesh);
  at::Tensor squares_of(const Group& group) const;
  at::Tensor euclidean(at::Tensor* doubts) const;
  at::Tensor scaled(at::Tensor* doubts) const;
  at::Tensor largest(at::Tensor* doubts) const;
  using Part = std::function<at::Tensor(const Group&)>;
  at::Tensor over_axes(Reduce reduce, const Part& of_group) const;
  at::Tensor over_ranks(Reduce reduce, const Part& of_group, at::Tensor* doubts = nullptr) const;

  c10::Device device_;
  double norm_type_;
  bool fits_;  // whether squares of the gradients fit fp64
  std::vector<Group> groups_;
  Communicator* pipeline_ = nullptr;
  bool crosses_ = false;  // whether there are several groups, some of which are reduced over ranks
};

// Divides the gradients of the shards so that the norm is at most max_norm, like Step and
// torch.nn.utils.clip_grad_norm_. Does not wait for a device. norm: the result of measure(). If the norm is
// not finite, skip the update instead.
HEDDLE_API void clip_gradients(std::span<Shard* const> shards, const at::Tensor& norm, double max_norm);

}  // namespace train
}  // namespace heddle
