// Partial gradients are packed into one buffer an axis, summed, and written back; stages get one more virtual
// call, where there is something to add.
#include "core/parallel/built/built_stage.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/parallel/reduction.h"

namespace heddle::parallel {

PartialSums::PartialSums(std::span<Shard* const> shards, const DeviceMesh& mesh) {
  for (Shard* shard : shards) {
    if (!shard->tensor.requires_grad()) continue;
    check_axes(*shard, shard->partial, mesh);
    for (const std::string& axis : shard->partial)
      if (mesh.size(axis) > 1)
        sum_of(mesh.group(axis), shard->tensor.scalar_type()).entries.push_back({shard, {}, false});
  }
  for (Sum& sum : sums_) lay_out(sum);
}

PartialSums::Sum& PartialSums::sum_of(Communicator& ranks, at::ScalarType dtype) {
  const auto known = std::find_if(sums_.begin(), sums_.end(),
                                  [&](const Sum& sum) { return sum.ranks == &ranks && sum.dtype == dtype; });
  return known != sums_.end() ? *known : sums_.emplace_back(Sum{&ranks, dtype, {}, {}, {}});
}

void PartialSums::lay_out(Sum& sum) {
  const int64_t count = static_cast<int64_t>(sum.entries.size());
  int64_t elements = 0;
  for (const Entry& entry : sum.entries) elements += entry.shard->tensor.numel();
  const at::Tensor& first = sum.entries.front().shard->tensor;
  sum.buffer = at::empty({elements + count}, first.options().requires_grad(false));
  sum.counts = sum.buffer.narrow(0, elements, count);
  int64_t at = 0;
  for (Entry& entry : sum.entries) {
    const at::Tensor& tensor = entry.shard->tensor;
    entry.part = sum.buffer.narrow(0, at, tensor.numel()).view(tensor.sizes());
    at += tensor.numel();
  }
}

void PartialSums::add() {
  at::NoGradGuard no_gradients;
  for (Sum& sum : sums_) add(sum);
}

// A count is read only where this rank had no gradient itself, so the usual step reads nothing back. On meta
// no other rank had one either.
void PartialSums::add(Sum& sum) {
  sum.counts.fill_(1);
  for (size_t i = 0; i < sum.entries.size(); ++i) {
    Entry& entry = sum.entries[i];
    const at::Tensor& gradient = entry.shard->tensor.grad();
    if ((entry.had = gradient.defined())) {
      entry.part.copy_(gradient);
    } else {
      entry.part.zero_();
      sum.counts.select(0, static_cast<int64_t>(i)).zero_();
    }
  }
  sum.ranks->all_reduce(sum.buffer)->wait();
  for (size_t i = 0; i < sum.entries.size(); ++i) {
    Entry& entry = sum.entries[i];
    if (entry.had)
      entry.shard->tensor.mutable_grad().copy_(entry.part);
    else if (!sum.counts.is_meta() && sum.counts.select(0, static_cast<int64_t>(i)).item<double>() > 0)
      entry.shard->tensor.mutable_grad() = entry.part.clone();
  }
}

namespace {

std::vector<Shard*> partial_shards(ParallelStage& stage) {
  std::vector<Shard*> out;
  for (Shard& shard : stage.owned())
    if (!shard.partial.empty()) out.push_back(&shard);
  return out;
}

// Has every optional interface; for those that the stage lacks it does what StageInterfaces does.
class BuiltStage final : public ParallelStage,
                         public GatherHints,
                         public ReductionHints,
                         public GradientAverage,
                         public WholeParameters,
                         public StepRestart {
 public:
  BuiltStage(std::unique_ptr<ParallelStage> inner, const Stages& stages, const DeviceMesh& mesh,
             std::shared_ptr<TiedCopies> tied)
      : inner_(std::move(inner)),
        tied_(std::move(tied)),
        optional_(*inner_),
        running_(stages.running()),
        pipeline_(stages.pipeline().stages()) {
    if (const std::vector<Shard*> shards = partial_shards(*inner_); !shards.empty())
      partial_.emplace(shards, mesh);
  }

  Tensors forward(Tensors inputs, const Batch& batch) override {
    if (pipeline_ > 1 && *running_ == 0)
      throw Error(
          ErrorCode::input, "ParallelStage::forward",
          "this is one of the " + std::to_string(pipeline_) +
              " stages of a pipeline: its inputs come from another rank, by the schedule",
          "let heddle::Step run the schedule (with an optimizer of your own, if you have one), or set "
          "pp_size: 1");
    return inner_->forward(std::move(inputs), batch);
  }
  void finish_gradients() override {
    inner_->finish_gradients();
    if (partial_) partial_->add();
    if (tied_) tied_->add_gradients();
  }
  std::span<Shard> owned() override { return inner_->owned(); }
  void parameters_changed() override { inner_->parameters_changed(); }
  void unshard() override { optional_.unshard(); }
  void reshard() override { optional_.reshard(); }
  void expect_last_backward() override { optional_.expect_last_backward(); }
  void reduce_gradients() override { optional_.reduce_gradients(); }
  double gradient_divisor() const override { return optional_.gradient_divisor(); }
  std::vector<WholeParameter> hold_whole() override { return optional_.hold_whole(); }
  void release_whole() override { optional_.release_whole(); }
  void restart_step() override { optional_.restart_step(); }

 private:
  std::unique_ptr<ParallelStage> inner_;
  std::shared_ptr<TiedCopies> tied_;  // null: not this stage's to sum
  StageInterfaces optional_;
  std::shared_ptr<const std::atomic<int>> running_;
  int pipeline_;
  std::optional<PartialSums> partial_;
};

}  // namespace

void complete(Stages& stages, const DeviceMesh& mesh, std::shared_ptr<TiedCopies> tied) {
  const bool partial = std::any_of(stages.begin(), stages.end(),
                                   [](const auto& stage) { return !partial_shards(*stage).empty(); });
  if (!partial && stages.pipeline().stages() == 1) return;
  size_t left = stages.size();
  stages.wrap([&](std::unique_ptr<ParallelStage> stage) {
    return std::make_unique<BuiltStage>(std::move(stage), stages, mesh, --left == 0 ? tied : nullptr);
  });
}

}  // namespace heddle::parallel
