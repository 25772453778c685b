// The strategy and the entry points of its stage.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <utility>

#include "stage.h"

namespace zero1 {

Stage::Stage(heddle::Units units, const heddle::DeviceMesh& mesh, std::span<const heddle::Placed> placed,
             int64_t bytes)
    : units_(std::move(units)), group_(mesh.group("dp")) {
  collect(placed, mesh.device());
  std::vector<at::Tensor> leaves;
  for (const Parameter& parameter : trained_) leaves.push_back(parameter.leaf);
  for (const auto& bucket : heddle::parallel::flat_buckets(leaves, bytes)) add(bucket, mesh.device());
  add_frozen();
  used_ = at::zeros({static_cast<int64_t>(trained_.size())});
  if (is(Fault::first_hook_counts)) watch_leaves();
  if (is(Fault::owns_nothing_throws)) refuse_nothing();
}

heddle::Tensors Stage::forward(heddle::Tensors inputs, const heddle::Batch& batch) {
  if (is(Fault::throws_in_forward)) throw std::out_of_range("table of units");
  if (is(Fault::needs_unshard) && !unsharded_) throw std::logic_error("parameters are not gathered");
  if (is(Fault::dies_in_second_step) && stepped_) throw std::runtime_error("the buffers of the last step");
  if (is(Fault::last_microbatch_only) && at::GradMode::is_enabled())
    for (Parameter& parameter : trained_) parameter.leaf.mutable_grad() = at::Tensor();
  if (is(Fault::extra_lost)) {
    heddle::Batch other = batch;
    other.extra = at::Tensor();
    for (const auto& unit : units_) inputs = unit->forward(std::move(inputs), other);
    return inputs;
  }
  if (is(Fault::evaluation_counts) && !at::GradMode::is_enabled()) ++forwards_;
  for (const auto& unit : units_) inputs = unit->forward(std::move(inputs), batch);
  if (at::GradMode::is_enabled() && inputs[0].requires_grad()) watch_backward(inputs[0]);
  return inputs;
}
void Stage::expect_last_backward() {
  last_ = true;
  if (is(Fault::last_forgotten)) take_all();
}
void Stage::reduce_gradients() {
  if (is(Fault::needs_hints)) reduce();
}

void Stage::finish_gradients() {
  if (is(Fault::throws_in_finish)) throw std::runtime_error("no free buffer");
  if (is(Fault::exits_in_finish) && group_.rank() == 0) std::_Exit(0);
  if (is(Fault::loops_in_finish) && group_.rank() == 1) {  // bounded, so that the test's process ends
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(12);
    while (std::chrono::steady_clock::now() < end) {
    }
  }
  if (!is(Fault::needs_hints)) reduce();
  for (Parameter& parameter : trained_) {
    if (!is(Fault::gradients_pile_up)) parameter.leaf.mutable_grad() = at::Tensor();
    parameter.taken = at::Tensor();
  }
  last_ = false;
  forwards_ = started_ = backwards_ = 0;
  stepped_ = true;
}

std::span<heddle::Shard> Stage::owned() {
  if (is(Fault::throws_in_owned)) throw std::runtime_error("the list of shards is locked");
  if (is(Fault::owned_is_a_copy))
    for (heddle::Shard& shard : owned_)
      shard.tensor = shard.tensor.detach().clone().set_requires_grad(shard.tensor.requires_grad());
  return owned_;
}

void Stage::parameters_changed(heddle::ParametersChange) {
  if (is(Fault::throws_in_changed)) throw std::runtime_error("no stream");
  if (is(Fault::change_ignored) && filled_ && !std::exchange(stepped_, false)) return;
  filled_ = true;
  if (is(Fault::stale_every_second) && ++changes_ % 2 == 0) return;
  const at::NoGradGuard no_gradients;
  if (is(Fault::frozen_drifts))
    for (Parameter& parameter : frozen_) parameter.leaf.detach().mul_(1.01);
  for (const Bucket& bucket : buckets_)
    group_.all_gather(bucket.values, bucket.values.narrow(0, group_.rank() * bucket.part, bucket.part))
        ->wait();
  if (is(Fault::values_are_rounded))
    for (const Bucket& bucket : buckets_) bucket.values.copy_(bucket.values.to(at::kBFloat16));
}

void Stage::release_whole() {
  if (is(Fault::release_loses))
    for (const Bucket& bucket : buckets_) bucket.values.zero_();
}

std::vector<heddle::WholeParameter> Stage::hold_whole() {
  if (is(Fault::throws_in_hold)) throw std::runtime_error("nothing to hold");
  std::vector<heddle::WholeParameter> whole;
  if (is(Fault::whole_is_part)) {
    for (const heddle::Shard& shard : owned_) whole.push_back({shard.name, shard.tensor.detach()});
    return whole;
  }
  for (const auto* parameters : {&trained_, &frozen_})
    for (const Parameter& parameter : *parameters)
      whole.push_back({parameter.whole.name, parameter.leaf.detach()});
  return whole;
}

namespace {

struct Config {
  int64_t bucket_mb = 25;
};

class Strategy : public heddle::IStrategy {
 public:
  explicit Strategy(Config config) : config_(config) {}
  heddle::Needs needs() const override {
    heddle::Needs needs;
    needs.axes = {"pp", "dp", "tp"};
    needs.axes_when_used = {"pp", "tp"};
    if (kFault == Fault::promises_restart) needs.may_use = {"post_validation"};
    static std::atomic<int> made{0};
    if (kFault == Fault::needs_change && made++ > 1) needs.axes = {"dp", "tp"};
    needs.refuses = {{"cp", "zero1 does not support context parallelism"},
                     {"ep", "zero1 does not support expert parallelism"}};
    return needs;
  }
  std::unique_ptr<heddle::ParallelStage> parallelize(heddle::Units units, const heddle::DeviceMesh& mesh,
                                                     std::span<const heddle::Placed> placed) override {
    return std::make_unique<Stage>(std::move(units), mesh, placed, config_.bucket_mb << 20);
  }

 private:
  Config config_;
};

heddle::ConfigSchema<Config> schema() {
  return heddle::ConfigSchema<Config>().field("bucket_mb", &Config::bucket_mb, "Size of a bucket in MiB.",
                                              heddle::Range<int64_t>{1, 1024});
}

}  // namespace

void offer(heddle::Offer& plugin) {
  plugin.strategy<Strategy>("zero1", schema());
}

}  // namespace zero1
