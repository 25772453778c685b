// The order of one step: count tokens, run the microbatches, reduce, measure, clip, update.
#include "heddle/train/step.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/train/adamw.h"
#include "heddle/train/norm.h"
#include "heddle/train/partial_sums.h"

namespace heddle {
namespace {

int64_t label_tokens(std::span<const Batch> microbatches) {
  int64_t count = 0;
  for (const Batch& batch : microbatches) {
    if (!batch.labels.defined())
      throw Error(ErrorCode::internal, "train", "a batch without labels has no loss",
                  "set Batch::labels, with Batch::kIgnore where a token does not count");
    count += at::ne(batch.labels, Batch::kIgnore).sum().item<int64_t>();
  }
  return count;
}

// One small number that all data-parallel ranks add up, in flight while the step goes on.
class Total {
 public:
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

std::vector<Shard*> pointers(std::span<Shard> shards) {
  std::vector<Shard*> out;
  for (Shard& shard : shards) out.push_back(&shard);
  return out;
}

}  // namespace

struct Step::Impl {
  ParallelStage& stage;
  StepConfig config;
  Communicator* counted;  // ranks that hold different samples
  Communicator* summed;   // ranks that hold different tokens
  train::PartialSums partial;
  train::GradientNorm norm;
  train::AdamW optimizer;

  Impl(ParallelStage& stage, const DeviceMesh& mesh, StepConfig given)
      : stage(stage),
        config(std::move(given)),
        counted(mesh.size("dp") > 1 ? &mesh.group("dp") : nullptr),
        summed(mesh.size("dp_cp") > 1 ? &mesh.group("dp_cp") : nullptr),
        partial(pointers(stage.owned()), mesh),
        norm(stage.owned(), mesh),
        optimizer(stage.owned(), config) {}

  // The sum of the token losses of one microbatch, with its graph.
  at::Tensor loss_sum(const Batch& batch) {
    Tensors out = stage.forward({}, batch);
    if (out.size() != 1 || out[0].numel() != 1)
      throw Error(ErrorCode::internal, "train", "the last unit returned no loss",
                  "return one tensor of one element, the sum of the token losses");
    return std::move(out[0]);
  }

  // Forward and backward of every microbatch; returns this rank's sum of token losses.
  at::Tensor accumulate(std::span<const Batch> microbatches, Total& tokens) {
    at::Tensor sum = at::zeros({1}, at::kDouble);
    double scale = 0;
    for (size_t i = 0; i < microbatches.size(); ++i) {
      if (i + 1 == microbatches.size()) stage.expect_last_backward();
      const at::Tensor loss = loss_sum(microbatches[i]);
      if (i == 0) {
        const double count = tokens.get().item<double>();
        scale = count > 0 ? 1 / count : 0;
      }
      torch::autograd::backward({loss}, {at::full_like(loss, scale)});
      sum.add_(loss.detach());
    }
    return sum;
  }
};

Step::Step(Stages& stages, const DeviceMesh& mesh, StepConfig config) {
  if (stages.size() != 1)
    throw Error(ErrorCode::not_built, "train",
                "a rank with " + std::to_string(stages.size()) +
                    " pipeline stages: the stage runner is not built yet");
  impl_ = std::make_unique<Impl>(*stages.front(), mesh, std::move(config));
}

Step::~Step() = default;

StepReport Step::run(std::span<const Batch> microbatches, double lr, double weight_decay) {
  Impl& my = *impl_;
  Total tokens(static_cast<double>(label_tokens(microbatches)), my.counted);
  Total loss(my.accumulate(microbatches, tokens), my.summed);
  my.stage.finish_gradients();
  my.partial.add();

  StepReport report;
  report.grad_norm = my.norm.measure();
  at::Tensor divisor;
  if (my.config.max_norm) divisor = train::clip_divisor(report.grad_norm, *my.config.max_norm);
  my.optimizer.update(lr, weight_decay, divisor);
  my.stage.parameters_changed();

  report.label_tokens = static_cast<int64_t>(tokens.get().item<double>());
  report.loss = loss.get() / static_cast<double>(std::max<int64_t>(report.label_tokens, 1));
  return report;
}

StepReport Step::evaluate(std::span<const Batch> microbatches) {
  at::NoGradGuard no_gradients;
  Impl& my = *impl_;
  Total tokens(static_cast<double>(label_tokens(microbatches)), my.counted);
  at::Tensor sum = at::zeros({1}, at::kDouble);
  for (const Batch& batch : microbatches) sum.add_(my.loss_sum(batch));
  Total loss(sum, my.summed);

  StepReport report;
  report.label_tokens = static_cast<int64_t>(tokens.get().item<double>());
  report.loss = loss.get() / static_cast<double>(std::max<int64_t>(report.label_tokens, 1));
  return report;
}

}  // namespace heddle
