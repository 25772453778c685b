// The order of one step: count tokens, run the schedule, reduce, measure, clip, update.
#include "heddle/train/step.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/mesh/dry.h"
#include "heddle/model/module.h"
#include "lib/train/cut.h"
#include "lib/train/optimizer/adamw.h"
#include "lib/train/optimizer/norm.h"
#include "lib/train/optimizer/updater.h"
#include "lib/train/post_validation.h"
#include "lib/train/runner.h"
#include "lib/train/side_totals.h"
#include "lib/train/step_counts.h"

namespace heddle {
namespace {

using train::Total;

// The name of a group for tensors of the CPU alone: a device makes no connections of its own for it.
constexpr const char* kHostGroup = "host";

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

}  // namespace

struct Step::Impl : train::UpdateInDoubt {
  Stages& stages;
  const DeviceMesh mesh;
  StepConfig config;
  const bool dry;                         // nothing has a value, and nothing is updated
  std::unique_ptr<Communicator> on_host;  // all ranks; null: a group of the mesh serves
  Communicator* counted;                  // all ranks, for numbers of the CPU; null: one
  Communicator* summed;                   // ranks that hold different tokens
  Communicator* pipeline;                 // ranks that hold different stages: the loss is on the last one
  train::Runner runner;
  std::vector<Shard*> shards;
  train::GradientNorm norm;
  std::unique_ptr<IOptimizer> own_optimizer;  // AdamW, if the caller gives no optimizer; else null
  train::Updater updater;
  std::optional<train::SideTotals> sides;     // empty: there are no side outputs
  std::optional<train::PostValidation> late;  // empty: an update waits for the norm of all stages
  StepReport late_report;                     // of the update that is not validated yet
  train::SideTotals::Counts late_counts;
  struct Listener {
    AfterUpdate* told;
    std::vector<Shard*> shards;  // of `frozen`
    std::vector<FrozenPart> frozen;
  };
  std::vector<Listener> listeners;
  bool listeners_write = false;  // some of them may write to shards
  Recording* recording = nullptr;

  Impl(Stages& stages, const DeviceMesh& mesh, StepConfig given, IOptimizer* optimizer = nullptr)
      : stages(stages),
        mesh(mesh),
        config(std::move(given)),
        dry(dry_rank(mesh) != nullptr),
        on_host(group_of_host(stages, mesh)),
        counted(on_host ? on_host.get() : group_of_all(mesh)),
        summed(group_of(mesh, kTokenAxis)),
        pipeline(group_of(mesh, kPipelineAxis)),
        runner(stages, mesh),
        shards(stages.shards()),
        norm(shards, mesh, config.norm_type),
        own_optimizer(optimizer == nullptr ? train::make_adamw(config.optimizer) : nullptr),
        updater(shards, this->mesh, config, own_optimizer ? *own_optimizer : *optimizer) {
    const auto& layout = stages.attached().side_outputs;
    if (layout && !layout->empty()) sides.emplace(layout, mesh);
    if (stages.pipeline().config.post_validation && pipeline != nullptr) {
      train::check_post_validation(stages.pipeline().config.where, norm.is_a_sum(), updater.optimizer());
      late.emplace(stages, mesh, updater, config.max_norm);
    }
    for (const UpdateListener& listener : stages.attached().after_update) {
      if (config.benchmark) break;
      Listener& one = listeners.emplace_back(Listener{listener.told, {}, {}});
      for (const std::string& name : listener.frozen)
        for (Shard* shard : shards)
          if (shard->name == name) {
            one.shards.push_back(shard);
            one.frozen.push_back({name, {}, shard->offset});
          }
      listeners_write = listeners_write || !listener.frozen.empty();
    }
  }

  static Communicator* group_of(const DeviceMesh& mesh, std::string_view axis) {
    return mesh.size(axis) > 1 ? &mesh.group(axis) : nullptr;
  }

  static Communicator* group_of_all(const DeviceMesh& mesh) {
    return group_of(mesh, mesh.size(kSampleAxis) == mesh.size(kWorldAxis) ? kSampleAxis : kWorldAxis);
  }

  // A group of all ranks that moves nothing of a device, where the mesh would make one for these numbers
  // alone.
  static std::unique_ptr<Communicator> group_of_host(const Stages& stages, const DeviceMesh& mesh) {
    const bool has_sides = stages.attached().side_outputs && !stages.attached().side_outputs->empty();
    if (mesh.device().is_cpu() || mesh.device().is_meta() || has_sides ||
        mesh.size(kSampleAxis) == mesh.size(kWorldAxis))
      return nullptr;
    return mesh.rendezvous().group(kHostGroup, mesh.ranks(kWorldAxis));
  }

  // Measures over all ranks: a NaN or Inf loss goes with the norm, also to ranks that compute the same loss.
  void measure(StepReport& report) {
    if (config.benchmark) return;
    at::Tensor nonfinite = train::nonfinite_flag(report.loss);
    report.grad_norm = norm.measure(&nonfinite);
    report.skip = train::skip_above(report.grad_norm, train::largest_norm(config.max_norm), nonfinite);
  }

  // If the host can read `skip`, it decides here; else the optimizer reads it on the device. The optimizer
  // updates all trained shards.
  void update(const StepReport& report, double lr, double weight_decay) {
    if (dry) {
      updater.record_update();
      return updater.drop_gradients();
    }
    const bool host_decides =
        !report.skip.defined() || report.skip.is_cpu() || !updater.optimizer().takes_divisor_and_skip();
    if (host_decides && report.skipped()) return updater.drop_gradients();
    at::Tensor divisor;
    if (config.max_norm && report.grad_norm.defined())
      divisor = train::clip_divisor(report.grad_norm, *config.max_norm);
    updater.update({lr, weight_decay, divisor, host_decides ? at::Tensor() : report.skip});
  }

  // Counts the batches, and starts the sum over all ranks.
  train::StepCounts count(std::span<const Batch> batches) {
    train::BatchCounts mine;
    mine.label_tokens = train::label_tokens(batches);
    if (sides) mine.with_text = runner.count_microbatches(batches);
    for (const Batch& batch : batches) mine.microbatches += train::microbatches_of(batch, stages.pipeline());
    const bool is_first =
        mesh.ranks(kSampleAxis).front() == 0;  // ranks with the same samples are in other groups
    return {mine, counted, is_first};
  }

  // Before ranks that have different numbers of microbatches would wait for each other.
  void check_equal(train::StepCounts& counts) {
    if (!dry) counts.check_equal(mesh.rendezvous());
  }

  // Starts the sum of the loss and side outputs over ranks.
  std::optional<Total> start_sums(at::Tensor loss) {
    if (!sides) return std::optional<Total>(std::in_place, std::move(loss), summed);
    sides->start(loss, runner.side_outputs());
    return std::nullopt;
  }

  // The update by what this rank knows; the report's tensors are filled by holds().
  StepReport update_early(StepReport report, train::StepCounts& counts, std::optional<Total>& loss, double lr,
                          double weight_decay) {
    const auto none = at::zeros({1}, at::TensorOptions(at::kDouble).device(mesh.device()));
    const at::Tensor squares = norm.squares_of_stages();
    late->update(squares, sides ? at::Tensor() : loss->get(), lr, weight_decay);
    for (const auto& stage : stages) stage->parameters_changed(ParametersChange::updated);
    late_counts = {counts.label_tokens(), counts.with_text()};
    report.label_tokens = static_cast<int64_t>(late_counts.label_tokens);
    report.loss = at::full_like(none, kUnknown);
    report.grad_norm = at::full_like(none, kUnknown);
    report.skip = none.to(at::kFloat);
    if (sides) {
      const auto& layout = stages.attached().side_outputs;
      report.side_values = {layout, at::full({layout->reported()}, kUnknown, none.options())};
    }
    return late_report = report;
  }

  bool holds() override {
    StepReport& report = late_report;
    at::Tensor sum;
    if (sides) report.side_values.values.copy_(sides->finish(late_counts, sum).values);
    const train::PostValidation::Totals totals = late->wait(sum);
    report.grad_norm.copy_(totals.norm);
    report.loss.copy_(totals.loss / std::max(late_counts.label_tokens, 1.0));
    report.skip.fill_(totals.skips ? 1 : 0);
    if (totals.holds) tell_updated(std::exchange(late_report, {}));
    return totals.holds;
  }

  void amend() override {
    late->amend();
    tell_updated(std::exchange(late_report, {}));
  }

  bool in_doubt() const { return late && late->pending(); }
  void settle() {
    if (in_doubt() && !holds()) amend();
  }

  // The loss of the global batch, on every rank.
  void report_sums(StepReport& report, train::StepCounts& counts, std::optional<Total>& loss) {
    at::Tensor sum;
    report.label_tokens = static_cast<int64_t>(counts.label_tokens());
    if (sides) {
      report.side_values = sides->finish({counts.label_tokens(), counts.with_text()}, sum);
    } else {
      sum = loss->get();
      if (pipeline != nullptr) pipeline->all_reduce(sum)->wait();
    }
    report.loss = sum / static_cast<double>(std::max<int64_t>(report.label_tokens, 1));
  }

  void tell_updated(const StepReport& report) {
    const Attached& attached = stages.attached();
    if (dry || (attached.parallelizers.empty() && listeners.empty())) return;
    const at::NoGradGuard no_gradients;
    const auto flag = at::TensorOptions(at::kFloat).device(mesh.device());
    Updated updated{report.side_values, report.skip.defined() ? report.skip : at::zeros({1}, flag)};
    for (const auto& parallelizer : attached.parallelizers) parallelizer->after_update(updated, mesh);
    for (Listener& listener : listeners) {
      for (size_t i = 0; i < listener.shards.size(); ++i)
        listener.frozen[i].tensor = listener.shards[i]->tensor;
      updated.frozen = listener.frozen;
      listener.told->after_update(updated, mesh);
    }
  }
};

bool StepReport::skipped() const {
  return skip.defined() && skip.item<float>() != 0;
}

Step::Step(Stages& stages, const DeviceMesh& mesh, StepConfig config)
    : impl_(std::make_unique<Impl>(stages, mesh, std::move(config))) {}

Step::Step(Stages& stages, const DeviceMesh& mesh, StepConfig config, IOptimizer& optimizer)
    : impl_(std::make_unique<Impl>(stages, mesh, std::move(config), &optimizer)) {}

Step::~Step() = default;

StepReport Step::run(std::span<const Batch> batches, double lr, double weight_decay) {
  Impl& my = *impl_;
  train::Phases phases(my.recording);
  train::StepCounts counts = my.count(batches);
  if (batches.empty()) {
    my.check_equal(counts);
    my.settle();  // no backward asks for the last update
  }
  phases.end("count tokens");
  const auto scale = [&] {
    const double count = my.config.benchmark ? 1 : counts.label_tokens();
    return count > 0 ? 1 / count : 0;
  };
  const auto microbatches = [&] { return counts.with_text(); };
  at::Tensor sum = my.runner.train(batches, scale, microbatches, my.in_doubt() ? &my : nullptr,
                                   [&] { my.check_equal(counts); });
  std::optional<Total> loss = my.start_sums(std::move(sum));
  phases.end("schedule");
  for (const auto& stage : my.stages) stage->finish_gradients();
  phases.end("reduce");

  StepReport report;
  if (my.late) {
    report = my.update_early(report, counts, loss, lr, weight_decay);
    phases.end("update");
    return my.dry ? StepReport() : report;
  }
  my.report_sums(report, counts, loss);
  my.measure(report);
  phases.end("norm");
  my.update(report, lr, weight_decay);
  // If listeners write to shards, the strategy is told of both changes at once.
  const auto changed = [&] {
    for (const auto& stage : my.stages) stage->parameters_changed(ParametersChange::updated);
  };
  if (!my.listeners_write) changed();
  phases.end("update");
  my.tell_updated(report);
  if (my.listeners_write) changed();
  phases.end("report");
  return my.dry ? StepReport() : report;
}

void Step::settle() {
  impl_->settle();
}

bool Step::unsettled() const {
  return impl_->in_doubt();
}

StepReport Step::evaluate(std::span<const Batch> batches) {
  Impl& my = *impl_;
  my.settle();
  train::StepCounts counts = my.count(batches);
  const auto check_equal = [&] { my.check_equal(counts); };
  if (batches.empty()) check_equal();
  at::Tensor sum = my.runner.evaluate(batches, check_equal);
  check_equal();
  std::optional<Total> loss = my.start_sums(std::move(sum));
  StepReport report;
  my.report_sums(report, counts, loss);
  return my.dry ? StepReport() : report;
}

std::vector<OptimizerState> Step::optimizer_state() {
  impl_->settle();
  return impl_->updater.state();
}

int Step::peak_alive() const {
  return impl_->runner.peak_alive();
}

void Step::record(Recording* recording) {
  impl_->recording = recording;
  impl_->runner.record(recording);
}

}  // namespace heddle
