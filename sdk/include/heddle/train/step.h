// One optimizer step over this rank's stages: the schedule, gradients, clipping, AdamW, and what to report;
// and the norm and clipping for a host's own loop.
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

// What a rank did in a step and when: for traces and for finding out where time goes.

// One action as it ran. Times are of the steady clock, which all processes of a machine share.
struct RanAction {
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;
  Action action;
  int call = 0;                 // the schedule's call in the step
  Time begin, ready, end;       // ready: its inputs were available; its work began
  Clock::duration away = {};    // between ready and end: it waited, and the action that it overlaps ran
  std::thread::id thread = {};  // that ran it
  bool overlapped = false;      // with the action before or after it
  // Of a dry step: moments of its ComputeRecorder (heddle/ops/compute_log.h); else -1.
  int64_t first_moment = -1, ready_moment = -1, last_moment = -1;
  Clock::duration work() const { return end - ready - away; }
};

// A part of a step that is not an action: "reduce", "norm", "update".
struct RanPhase {
  const char* name;  // a literal
  RanAction::Time begin, end;
  int64_t last_moment = -1;  // as of RanAction
};

struct Recording {
  std::vector<RanAction> actions;
  std::vector<RanPhase> phases;
};

// Weight decay is applied to every parameter.
struct AdamWConfig {
  double lr = 1e-4;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
  bool decoupled = true;  // false: decay is added to the gradient, Adam (Kingma and Ba 2015)
  bool operator==(const AdamWConfig&) const = default;
};

// The parameters whose names match the regular expression somewhere; the first matching group is used.
struct ParameterGroup {
  std::string pattern;
  double lr_mult = 1.0, wd_mult = 1.0;
};

struct StepConfig {
  AdamWConfig optimizer;                 // of a Step without an IOptimizer
  std::optional<double> max_norm = 1.0;  // empty: no clipping
  bool master_weights = false;           // fp32 copies of shards stored in a lower dtype
  std::vector<ParameterGroup> groups;    // other learning rates and decays; empty: the same for all
  double norm_type = 2.0;                // p of the gradient norm; infinity: the maximum
  // As NeMo AutoModel's benchmarks: the token losses are summed and not divided by their number, no norm is
  // measured, every update is applied, and routers keep their bias. The reported loss is the mean.
  bool benchmark = false;
};

// Tensors, so that nothing waits for the device; read them when the line is logged. A step in a dry
// world (mesh/dry.h) computes nothing: all members have their initial values. With
// PipelineConfig::post_validation the tensors get their values in the next Step::run or in Step::settle.
struct HEDDLE_API StepReport {
  at::Tensor loss;           // fp64 [1]: sum of the token losses of the global batch / its label tokens
  at::Tensor grad_norm;      // fp64 [1]: before clipping, over the whole model; undefined: not measured
  int64_t label_tokens = 0;  // of the global batch
  SideValues side_values;    // auxiliary losses and metrics, over all ranks
  at::Tensor skip;           // fp32 [1]: 1 where the update was skipped, else 0; undefined: it never is

  // Whether the update was skipped because the loss is nan or inf, or the norm is nan, inf or too large to be
  // squared in fp32. The same on every rank. Waits for the device.
  bool skipped() const;
};

class HEDDLE_API Step {
 public:
  // Updates with AdamW.
  Step(Stages& stages, const DeviceMesh& mesh, StepConfig config);
  // Updates with an optimizer of a plugin or of the host, which outlives it; AdamWConfig is not used. On a
  // device each step waits for the norm unless the optimizer takes_divisor_and_skip(). Throws Error{config}
  // under pp_post_validation unless it can_undo().
  Step(Stages& stages, const DeviceMesh& mesh, StepConfig config, IOptimizer& optimizer);
  ~Step();
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  // Forward and backward over this rank's batches, reduction, clipping and the update with `lr`, which is
  // skipped if the loss or the norm is not finite (StepReport::skipped). A batch is one pass through the
  // pipeline's schedule, cut into its microbatches, or one microbatch without a pipeline; several accumulate.
  // Every rank of a pipeline gets the same batches.
  StepReport run(std::span<const Batch> batches, double lr, double weight_decay);
  // With PipelineConfig::post_validation: waits for the gradient norm of all stages, undoes and repeats the
  // last update if that was wrong, and fills its report. Call it before anything but the next run() reads
  // parameters or a report, and after the last step; evaluate() and optimizer_state() do. A collective of
  // every rank; else it does nothing.
  void settle();
  // True: the last update is still to be settled, by the next run() or settle(). The same on every rank.
  bool unsettled() const;
  // The same loss without gradients, for validation.
  StepReport evaluate(std::span<const Batch> batches);

  // Of every non-empty trainable shard on this rank that the optimizer has state of, in no particular order.
  // AdamW's is exp_avg and exp_avg_sq, boxes like the shard, and step, the number of updates so far, fp32 [].
  // Where StepConfig::master_weights keeps an fp32 copy, that is "master".
  std::vector<OptimizerState> optimizer_state();

  // The most microbatches alive at once on this rank, over its stages, since the beginning.
  int peak_alive() const;
  // Records every action of the following steps; null (the default): none.
  void record(Recording* recording);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The gradient norm over the shards of a whole model, and clipping by it: what Step does, for a host's own
// loop.

namespace train {

// AdamW, or Adam without `decoupled`, with fused kernels: for plugins that train some parameters by it. Of
// the config lr and weight_decay are not used: OptimizerUpdate has them.
HEDDLE_API std::unique_ptr<IOptimizer> make_adamw(const AdamWConfig& config);

// Shards that the same axes split are summed together; each sum is then reduced over exactly those axes
// (Shard::axes), and over `pp`. Keeps the grouping of the shards, so that a step only adds.
class HEDDLE_API GradientNorm {
 public:
  // The shards are those of all stages of a rank, Stages::shards(). norm_type: p of the p-norm, above 0;
  // infinity: the largest number. A collective of every rank.
  GradientNorm(std::span<Shard* const> shards, const DeviceMesh& mesh, double norm_type = 2.0);

  // The norm of all gradients, fp64 [1]; gradients that are undefined count as zero. A gradient that is inf
  // makes it inf, one that is nan makes it nan, on every rank of the axes that split any shard. Finite ones
  // never overflow: squares of fp32 are summed in fp64, which holds them, and anything else is scaled by the
  // largest number first. A collective of every rank, after finish_gradients().
  // `doubts` (fp64 [1], at least 0) goes over the same ranks in the same messages and becomes more than 0 on
  // every rank where it is on any; null: nothing.
  at::Tensor measure(at::Tensor* doubts = nullptr) const;
  // The sum of the squares of this rank's stages alone, fp64 [1]: measure() is the root of the sum over `pp`.
  // A collective of every rank along the other axes. Only where it is_a_sum().
  at::Tensor squares_of_stages() const;
  // Whether the norm is the root of one sum of squares; others need the largest number first.
  bool is_a_sum() const { return norm_type_ == 2.0 && fits_; }

 private:
  struct Group {
    std::vector<std::string> axes, differs;
    std::vector<Shard*> shards;
    std::vector<Communicator*> reduces, means;  // over `axes`, and over `differs`
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
  bool fits_;  // squares of the gradients are within fp64
  std::vector<Group> groups_;
  Communicator* pipeline_ = nullptr;
  bool crosses_ = false;  // several groups, of which some are reduced over ranks
};

// Divides the gradients of the shards so that the norm becomes at most max_norm, as Step and
// torch.nn.utils.clip_grad_norm_ do; nothing waits for a device. `norm` is measure()'s. One that is not
// finite clips nothing useful: skip that update.
HEDDLE_API void clip_gradients(std::span<Shard* const> shards, const at::Tensor& norm, double max_norm);

}  // namespace train
}  // namespace heddle
