// The order of one step: count tokens, run the schedule, reduce, measure, clip, update.
#include "heddle/train/step.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string_view>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/mesh/dry.h"
#include "heddle/model/module.h"
#include "lib/train/optimizer/adamw.h"
#include "lib/train/optimizer/norm.h"
#include "lib/train/optimizer/partial_sums.h"
#include "lib/train/runner.h"
#include "lib/train/side_totals.h"

namespace heddle {
namespace {

int64_t label_tokens(std::span<const Batch> batches) {
  int64_t count = 0;
  for (const Batch& batch : batches) {
    if (!batch.labels.defined())
      throw Error(ErrorCode::internal, "train", "a batch without labels has no loss",
                  "set Batch::labels, with Batch::kIgnore where a token does not count");
    if (batch.labels.is_meta()) continue;  // a dry world: nothing is computed
    count += at::ne(batch.labels.to(at::kCPU), Batch::kIgnore).sum().item<int64_t>();
  }
  return count;
}

// Records the parts of a step; does nothing without a recording.
class Phases {
 public:
  explicit Phases(Recording* recording) : recording_(recording) {
    if (recording_ != nullptr) since_ = std::chrono::steady_clock::now();
  }
  void end(const char* name) {
    if (recording_ == nullptr) return;
    const auto now = std::chrono::steady_clock::now();
    recording_->phases.push_back({name, std::exchange(since_, now), now});
  }

 private:
  Recording* recording_;
  RanAction::Time since_;
};

// One small number that all data-parallel ranks add up, in flight while the step goes on.
class Total {
 public:
  // On the CPU, also where parameters are not: it is read in the middle of the step.
  Total(double mine, Communicator* group) : value_(at::zeros({1}, at::kDouble).fill_(mine)) { start(group); }
  // Two numbers, in one collective.
  Total(double first, double second, Communicator* group) : value_(at::zeros({2}, at::kDouble)) {
    value_.mutable_data_ptr<double>()[0] = first;
    value_.mutable_data_ptr<double>()[1] = second;
    start(group);
  }
  Total(at::Tensor mine, Communicator* group) : value_(std::move(mine)) { start(group); }
  at::Tensor get() {
    if (work_) work_->wait();
    work_.reset();
    return value_;
  }
  double number(int64_t index) { return get().const_data_ptr<double>()[index]; }

 private:
  void start(Communicator* group) {
    if (group != nullptr) work_ = group->all_reduce(value_);
  }
  at::Tensor value_;
  std::unique_ptr<Work> work_;
};

}  // namespace

struct Step::Impl {
  Stages& stages;
  const DeviceMesh mesh;
  StepConfig config;
  const bool dry;          // nothing has a value, and nothing is updated
  Communicator* counted;   // ranks that hold different samples
  Communicator* summed;    // ranks that hold different tokens
  Communicator* pipeline;  // ranks that hold different stages: the loss is on the last one
  train::Runner runner;
  std::vector<Shard*> shards;
  train::PartialSums partial;
  train::GradientNorm norm;
  train::AdamW optimizer;
  std::optional<train::SideTotals> sides;  // empty: there are no side outputs
  struct Told {
    AfterUpdate* one;
    std::vector<Shard*> shards;  // of `frozen`
    std::vector<FrozenPart> frozen;
  };
  std::vector<Told> told;
  bool told_changes = false;  // some of them may write to shards
  Recording* recording = nullptr;

  Impl(Stages& stages, const DeviceMesh& mesh, StepConfig given)
      : stages(stages),
        mesh(mesh),
        config(std::move(given)),
        dry(dry_rank(mesh) != nullptr),
        counted(group_of(mesh, kSampleAxis)),
        summed(group_of(mesh, kTokenAxis)),
        pipeline(group_of(mesh, kPipelineAxis)),
        runner(stages, mesh),
        shards(stages.shards()),
        partial(shards, mesh),
        norm(shards, mesh, config.norm_type),
        optimizer(shards, config) {
    const auto& layout = stages.attached().side_outputs;
    if (layout && !layout->empty()) sides.emplace(layout, mesh);
    for (const UpdateListener& listener : stages.attached().after_update) {
      Told& one = told.emplace_back(Told{listener.told, {}, {}});
      for (const std::string& name : listener.frozen)
        for (Shard* shard : shards)
          if (shard->name == name) {
            one.shards.push_back(shard);
            one.frozen.push_back({name, {}, shard->offset});
          }
      told_changes = told_changes || !listener.frozen.empty();
    }
  }

  static Communicator* group_of(const DeviceMesh& mesh, std::string_view axis) {
    return mesh.size(axis) > 1 ? &mesh.group(axis) : nullptr;
  }

  // A norm in host memory is read; one on a device is compared there, and the kernel reads the result.
  void update(const StepReport& report, double lr, double weight_decay) {
    if (dry) return optimizer.drop_gradients();
    const bool known = report.grad_norm.is_cpu();
    if (known && report.skipped()) return optimizer.drop_gradients();
    at::Tensor divisor, skip;
    if (config.max_norm) divisor = train::clip_divisor(report.grad_norm, *config.max_norm);
    if (!known) skip = train::skip_above(report.grad_norm, report.largest_norm);
    optimizer.update(lr, weight_decay, divisor, skip);
  }

  // The divisor of the losses, being summed over the data-parallel ranks.
  Total count(std::span<const Batch> batches) {
    const auto labels = static_cast<double>(label_tokens(batches));
    if (!sides) return {labels, counted};
    return {labels, static_cast<double>(runner.count_microbatches(batches)), counted};
  }

  // Starts the sum of the loss and side outputs over ranks.
  std::optional<Total> start(at::Tensor loss) {
    if (!sides) return std::optional<Total>(std::in_place, std::move(loss), summed);
    sides->start(loss, runner.side_outputs());
    return std::nullopt;
  }

  // The loss of the global batch, on every rank.
  void report_sums(StepReport& report, Total& counts, std::optional<Total>& loss) {
    at::Tensor sum;
    report.label_tokens = static_cast<int64_t>(counts.number(0));
    if (sides) {
      report.side_values = sides->finish({counts.number(0), counts.number(1)}, sum);
    } else {
      sum = loss->get();
      if (pipeline != nullptr) pipeline->all_reduce(sum)->wait();
    }
    report.loss = sum / static_cast<double>(std::max<int64_t>(report.label_tokens, 1));
  }

  void tell_updated(const StepReport& report) {
    const Attached& attached = stages.attached();
    if (dry || (attached.parallelizers.empty() && told.empty())) return;
    const at::NoGradGuard no_gradients;
    Updated updated{report.side_values, train::skip_above(report.grad_norm, report.largest_norm)};
    for (const auto& parallelizer : attached.parallelizers) parallelizer->after_update(updated, mesh);
    for (Told& listener : told) {
      for (size_t i = 0; i < listener.shards.size(); ++i)
        listener.frozen[i].tensor = listener.shards[i]->tensor;
      updated.frozen = listener.frozen;
      listener.one->after_update(updated, mesh);
    }
  }
};

bool StepReport::skipped() const {
  return grad_norm.defined() && !(grad_norm.item<double>() <= largest_norm);
}

Step::Step(Stages& stages, const DeviceMesh& mesh, StepConfig config)
    : impl_(std::make_unique<Impl>(stages, mesh, std::move(config))) {}

Step::~Step() = default;

StepReport Step::run(std::span<const Batch> batches, double lr, double weight_decay) {
  Impl& my = *impl_;
  Phases phases(my.recording);
  Total counts = my.count(batches);
  phases.end("count tokens");
  const auto scale = [&] {
    const double count = counts.number(0);
    return count > 0 ? 1 / count : 0;
  };
  const auto microbatches = [&] { return counts.number(1); };
  std::optional<Total> loss = my.start(my.runner.train(batches, scale, microbatches));
  phases.end("schedule");
  for (const auto& stage : my.stages) stage->finish_gradients();
  my.partial.add();
  phases.end("reduce");

  StepReport report;
  report.grad_norm = my.norm.measure();
  phases.end("norm");
  report.largest_norm = train::largest_norm(my.config.max_norm);
  my.update(report, lr, weight_decay);
  // Where listeners write to shards, the strategy hears of both changes at once.
  const auto changed = [&] {
    for (const auto& stage : my.stages) stage->parameters_changed();
  };
  if (!my.told_changes) changed();
  phases.end("update");
  my.report_sums(report, counts, loss);
  my.tell_updated(report);
  if (my.told_changes) changed();
  phases.end("report");
  return my.dry ? StepReport() : report;
}

StepReport Step::evaluate(std::span<const Batch> batches) {
  Impl& my = *impl_;
  Total counts = my.count(batches);
  std::optional<Total> loss = my.start(my.runner.evaluate(batches));
  StepReport report;
  my.report_sums(report, counts, loss);
  return my.dry ? StepReport() : report;
}

std::vector<OptimizerState> Step::optimizer_state() {
  return impl_->optimizer.state();
}

int Step::peak_alive() const {
  return impl_->runner.peak_alive();
}

void Step::record(Recording* recording) {
  impl_->recording = recording;
  impl_->runner.record(recording);
}

}  // namespace heddle
