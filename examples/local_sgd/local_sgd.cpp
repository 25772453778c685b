// Local SGD (Stich 2019): ranks train independently and average their parameters every few steps. Checkpoints
// contain the parameters and the optimizer state of each rank and the number of steps.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <map>
#include <utility>

#include "heddle/sdk.h"

namespace local_sgd {
namespace {

struct Config {
  int64_t sync_every = 4;
};

class Stage : public heddle::ParallelStage {
 public:
  Stage(heddle::Units units, const heddle::DeviceMesh& mesh, std::span<const heddle::Placed> placed,
        int64_t sync_every)
      : units_(std::move(units)), group_(mesh.group("dp")), sync_every_(sync_every) {
    const bool differs = sync_every > 1 && group_.size() > 1;
    std::map<std::string, at::Tensor> known;
    for (const auto& unit : units_)
      for (heddle::ParameterSlot& slot : unit->parameters()) {
        if (const auto first = known.find(slot.name); first != known.end()) {
          if (!slot.tensor->is_same(first->second)) slot.point(first->second);
          continue;
        }
        heddle::Shard& shard = owned_.emplace_back(heddle::whole_shard(slot, placed));
        if (slot.tensor->is_meta())
          slot.point(at::empty(slot.tensor->sizes(), slot.tensor->options().device(mesh.device())));
        else
          group_.broadcast(slot.tensor->detach(), 0)->wait();  // rank 0's values
        shard.tensor = *slot.tensor;
        if (differs && slot.trainable()) shard.differs = {"dp"};
        known.emplace(slot.name, shard.tensor);
      }
  }

  heddle::Tensors forward(heddle::Tensors inputs, const heddle::Batch& batch) override {
    for (const auto& unit : units_) inputs = unit->forward(std::move(inputs), batch);
    return inputs;
  }

  // Scales the gradients of this rank: the engine divides by the label tokens of all ranks.
  void finish_gradients() override {
    if (sync_every_ == 1) return sum_gradients();
    for (heddle::Shard& shard : owned_)
      if (at::Tensor& gradient = shard.tensor.mutable_grad(); gradient.defined())
        gradient = gradient.detach() * group_.size();
  }

  std::span<heddle::Shard> owned() override { return owned_; }

  void parameters_changed(heddle::ParametersChange change) override {
    if (change == heddle::ParametersChange::begun) steps_.zero_();
    if (change != heddle::ParametersChange::updated || sync_every_ == 1) return;
    if (steps_.add_(1).item<int64_t>() % sync_every_ != 0) return;
    const at::NoGradGuard no_gradients;
    for (const heddle::Shard& shard : owned_)
      if (shard.tensor.requires_grad())
        group_.all_reduce(shard.tensor.detach(), heddle::Reduce::average)->wait();
  }

  std::vector<heddle::StateTensor> state() override { return {heddle::number_state("steps", steps_)}; }

 private:
  // Sums gradients over the ranks. A parameter that no rank used keeps an undefined gradient.
  void sum_gradients() {
    const at::NoGradGuard no_gradients;
    for (heddle::Shard& shard : owned_) {
      if (!shard.tensor.requires_grad()) continue;
      at::Tensor& gradient = shard.tensor.mutable_grad();
      const at::Tensor used = at::zeros({1}, shard.tensor.options().requires_grad(false));
      if (gradient.defined()) used.fill_(1);
      group_.all_reduce(used)->wait();
      if (used.item<float>() == 0) continue;
      const at::Tensor sum =
          gradient.defined() ? gradient.detach().clone() : at::zeros(shard.tensor.sizes(), used.options());
      group_.all_reduce(sum)->wait();
      gradient = sum;
    }
  }

  heddle::Units units_;
  heddle::Communicator& group_;
  int64_t sync_every_;
  std::vector<heddle::Shard> owned_;
  at::Tensor steps_ = at::zeros({}, at::kLong);
};

class Strategy : public heddle::IStrategy {
 public:
  explicit Strategy(Config config) : config_(config) {}
  heddle::Needs needs() const override {
    heddle::Needs needs;
    needs.axes = {"dp"};
    needs.refuses = {{"pp", "local_sgd is an example without pipeline parallelism"},
                     {"tp", "local_sgd is an example without tensor parallelism"},
                     {"cp", "local_sgd is an example without context parallelism"},
                     {"ep", "local_sgd is an example without expert parallelism"}};
    if (config_.sync_every > 1)
      needs.approximate = {
          0.1, "ranks average their parameters every " + std::to_string(config_.sync_every) + " steps",
          "{sync_every: 1}"};
    return needs;
  }
  std::unique_ptr<heddle::ParallelStage> parallelize(heddle::Units units, const heddle::DeviceMesh& mesh,
                                                     std::span<const heddle::Placed> placed) override {
    return std::make_unique<Stage>(std::move(units), mesh, placed, config_.sync_every);
  }

 private:
  Config config_;
};

}  // namespace
}  // namespace local_sgd

HEDDLE_PLUGIN("local_sgd", "0.1.0", "strategy local_sgd") {
  using local_sgd::Config;
  plugin.strategy<local_sgd::Strategy>(
      "local_sgd", heddle::ConfigSchema<Config>().field(
                       "sync_every", &Config::sync_every,
                       "Number of steps between two averages of the parameters. 1 sums gradients instead, "
                       "which is exact.",
                       heddle::at_least<int64_t>(1)));
}
