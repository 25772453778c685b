// The order of one step: count tokens, run the schedule, reduce, measure, clip, update.
#include "heddle/train/step.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <chrono>
#include <string_view>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/train/adamw.h"
#include "heddle/train/norm.h"
#include "heddle/train/partial_sums.h"
#include "heddle/train/runner.h"

namespace heddle {
namespace {

int64_t label_tokens(std::span<const Batch> batches) {
  int64_t count = 0;
  for (const Batch& batch : batches) {
    if (!batch.labels.defined())
      throw Error(ErrorCode::internal, "train", "a batch without labels has no loss",
                  "set Batch::labels, with Batch::kIgnore where a token does not count");
    count += at::ne(batch.labels.to(at::kCPU), Batch::kIgnore).sum().item<int64_t>();
  }
  return count;
}

// The parts of a step, written down one after the other; nothing where nobody asks.
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
  Total(at::Tensor mine, Communicator* group) : value_(std::move(mine)) { start(group); }
  at::Tensor get() {
    if (work_) work_->wait();
    work_.reset();
    return value_;
  }

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
  StepConfig config;
  Communicator* counted;   // ranks that hold different samples
  Communicator* summed;    // ranks that hold different tokens
  Communicator* pipeline;  // ranks that hold different stages: the loss is on the last one
  train::Runner runner;
  std::vector<Shard*> shards;
  train::PartialSums partial;
  train::GradientNorm norm;
  train::AdamW optimizer;
  Recording* recording = nullptr;

  Impl(Stages& stages, const DeviceMesh& mesh, StepConfig given)
      : stages(stages),
        config(std::move(given)),
        counted(group_of(mesh, "dp")),
        summed(group_of(mesh, "dp_cp")),
        pipeline(group_of(mesh, "pp")),
        runner(stages, mesh),
        shards(stages.shards()),
        partial(shards, mesh),
        norm(shards, mesh, config.norm_type),
        optimizer(shards, config) {}

  static Communicator* group_of(const DeviceMesh& mesh, std::string_view axis) {
    return mesh.size(axis) > 1 ? &mesh.group(axis) : nullptr;
  }

  // A norm in host memory is looked at; one on a device is compared there, and the kernel takes the answer.
  void update(const StepReport& report, double lr, double weight_decay) {
    const bool known = report.grad_norm.is_cpu();
    if (known && report.skipped()) return optimizer.drop_gradients();
    at::Tensor divisor, skip;
    if (config.max_norm) divisor = train::clip_divisor(report.grad_norm, *config.max_norm);
    if (!known) skip = train::skip_above(report.grad_norm, report.largest_norm);
    optimizer.update(lr, weight_decay, divisor, skip);
  }

  // The loss of the global batch, on every rank.
  void report_loss(StepReport& report, Total& tokens, Total& sums) {
    at::Tensor sum = sums.get();
    if (pipeline != nullptr) pipeline->all_reduce(sum)->wait();
    report.label_tokens = static_cast<int64_t>(tokens.get().item<double>());
    report.loss = sum / static_cast<double>(std::max<int64_t>(report.label_tokens, 1));
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
  Total tokens(static_cast<double>(label_tokens(batches)), my.counted);
  phases.end("count tokens");
  const auto scale = [&] {
    const double count = tokens.get().item<double>();
    return count > 0 ? 1 / count : 0;
  };
  Total loss(my.runner.train(batches, scale), my.summed);
  phases.end("schedule");
  for (const auto& stage : my.stages) stage->finish_gradients();
  my.partial.add();
  phases.end("reduce");

  StepReport report;
  report.grad_norm = my.norm.measure();
  phases.end("norm");
  report.largest_norm = train::largest_norm(my.config.max_norm);
  my.update(report, lr, weight_decay);
  for (const auto& stage : my.stages) stage->parameters_changed();
  phases.end("update");
  my.report_loss(report, tokens, loss);
  phases.end("report");
  return report;
}

StepReport Step::evaluate(std::span<const Batch> batches) {
  Impl& my = *impl_;
  Total tokens(static_cast<double>(label_tokens(batches)), my.counted);
  Total loss(my.runner.evaluate(batches), my.summed);
  StepReport report;
  my.report_loss(report, tokens, loss);
  return report;
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
