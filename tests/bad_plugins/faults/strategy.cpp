// A strategy that all-reduces gradients and adds momentum. HEDDLE_FAULT selects a fault; each fault violates
// one sentence of heddle/parallel/strategy.h or needs.h.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/rand_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <stdexcept>
#include <utility>

#include "core/parallel/single.h"
#include "fault.h"
#include "heddle/sdk.h"

namespace {

using faults::is;

struct Config {
  double momentum = 0.02;
};

class Stage : public heddle::ParallelStage {
 public:
  Stage(std::unique_ptr<heddle::ParallelStage> inner, std::vector<heddle::ParameterSlot> slots,
        const heddle::DeviceMesh& mesh, double momentum)
      : inner_(std::move(inner)), slots_(std::move(slots)), mesh_(mesh), momentum_(momentum) {
    const std::string first = inner_->owned().front().name;
    if (is("needs_the_embedding") && first != "first.weight" && first != "model.embed_tokens.weight")
      throw std::runtime_error("no embedding");
    for (const heddle::Shard& shard : inner_->owned()) {
      mesh_.group(axis()).broadcast(shard.tensor.detach(), 0)->wait();
      if (shard.tensor.requires_grad() && !has(shard.name))
        kept_.emplace_back(shard.name, at::zeros_like(shard.tensor.detach()));
    }
  }
  heddle::Tensors forward(heddle::Tensors inputs, const heddle::Batch& batch) override {
    if (is("writes_in_forward")) write();
    if (is("releases_after_forward")) return forward_with_released(std::move(inputs), batch);
    return inner_->forward(std::move(inputs), batch);
  }
  void finish_gradients() override {
    const at::NoGradGuard no_gradients;
    size_t next = 0;
    for (heddle::Shard& shard : inner_->owned()) {
      if (!shard.tensor.requires_grad()) continue;
      at::Tensor& kept = kept_.at(next++).second;
      at::Tensor& gradient = shard.tensor.mutable_grad();
      const at::Tensor used = at::zeros({1}, kept.options());
      if (gradient.defined()) used.fill_(1);
      mesh_.group(axis()).all_reduce(used)->wait();
      if (used.item<float>() == 0) continue;
      at::Tensor sum = gradient.defined() ? gradient.detach().clone() : at::zeros_like(kept);
      mesh_.group(axis()).all_reduce(sum)->wait();
      if (is("sums_too_much")) sum.mul_(3);
      if (is("draws_at_random")) sum.mul_(at::rand_like(sum).mul_(1e-6).add_(1));
      if (momentum_ > 0 || is("exact_keeps_momentum"))
        kept.mul_(momentum_ > 0 ? momentum_ : 0.5).add_(sum), sum = kept.clone();
      gradient = sum;
    }
  }
  std::span<heddle::Shard> owned() override { return inner_->owned(); }
  void parameters_changed(heddle::ParametersChange change) override {
    const bool anew = change == heddle::ParametersChange::begun ||
                      (is("begins_anew_when_resumed") && change == heddle::ParametersChange::resumed);
    if (!anew) return;
    const at::NoGradGuard no_gradients;
    for (auto& [name, tensor] : kept_) tensor.zero_();
  }
  std::vector<heddle::StateTensor> state() override {
    std::vector<heddle::StateTensor> out;
    if (is("forgets_state") || momentum_ == 0) return out;
    for (const heddle::Shard& shard : inner_->owned())
      for (auto& [name, tensor] : kept_)
        if (name == shard.name && shard.tensor.requires_grad())
          out.push_back(
              heddle::box_state(shard, "momentum." + name, is("gives_copies") ? tensor.clone() : tensor));
    return out;
  }

 private:
  static const char* axis() { return is("forgets_replicas") ? "dp_shard" : "dp"; }
  // Writes weights that earlier microbatches need for their backward.
  void write() {
    const at::NoGradGuard no_gradients;
    for (heddle::Shard& shard : inner_->owned())
      if (!shard.tensor.is_meta()) shard.tensor.mul_(1);
  }
  // Gathers parameters for the forward and not for its recomputation.
  heddle::Tensors forward_with_released(heddle::Tensors inputs, const heddle::Batch& batch) {
    const auto swap = [&] {
      for (size_t i = 0; i < slots_.size(); ++i) std::swap(*slots_[i].tensor, released_[i]);
    };
    if (released_.empty())
      for (const heddle::ParameterSlot& slot : slots_)
        released_.push_back(at::zeros_like(slot.tensor->detach()).set_requires_grad(slot.trainable()));
    else
      swap();
    inputs = inner_->forward(std::move(inputs), batch);
    swap();
    return inputs;
  }
  bool has(const std::string& name) const {
    for (const auto& [known, tensor] : kept_)
      if (known == name) return true;
    return false;
  }
  std::unique_ptr<heddle::ParallelStage> inner_;
  std::vector<heddle::ParameterSlot> slots_;
  std::vector<at::Tensor> released_;  // by slot
  const heddle::DeviceMesh mesh_;
  double momentum_;
  std::vector<std::pair<std::string, at::Tensor>> kept_;  // one entry per trained parameter
};

class Faulty : public heddle::IStrategy {
 public:
  explicit Faulty(Config config) : momentum_(config.momentum) {}
  heddle::Needs needs() const override {
    heddle::Needs needs;
    needs.axes = {"dp"};
    if (is("needs_the_embedding")) needs.axes = {"pp", "dp"};
    needs.may_use = {"selective_activation_checkpointing"};
    if (is("no_axes")) needs.axes.clear();
    if (is("forgets_replicas")) needs.axes = {"dp_replicate", "dp_shard"};
    if (momentum_ > 0 || is("never_exact"))
      needs.approximate = {0.05, is("no_reason") ? "" : "a part of the last sum is added to the next",
                           "{momentum: 0}"};
    return needs;
  }
  std::unique_ptr<heddle::ParallelStage> parallelize(heddle::Units units, const heddle::DeviceMesh& mesh,
                                                     std::span<const heddle::Placed> placed) override {
    std::vector<heddle::ParameterSlot> slots;
    for (const auto& unit : units)
      for (heddle::ParameterSlot& slot : unit->parameters()) slots.push_back(slot);
    return std::make_unique<Stage>(
        heddle::parallel::make_single()->parallelize(std::move(units), mesh, placed), std::move(slots), mesh,
        momentum_);
  }

 private:
  double momentum_;
};

}  // namespace

HEDDLE_PLUGIN("faulty_strategy", "0.1.0", "strategy faulty") {
  plugin.strategy<Faulty>(
      "faulty", heddle::ConfigSchema<Config>().field("momentum", &Config::momentum,
                                                     "Part of the last sum that is added to the next.",
                                                     heddle::Range<double>{0, 1}));
}
