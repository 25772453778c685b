// Stage of one data-parallel rank: whole parameters, with mixed precision if configured.
#include <ATen/core/grad_mode.h>

#include <utility>

#include "stage.h"

namespace heddle::fsdp2 {
namespace {

class LocalStage : public ParallelStage {
 public:
  LocalStage(sharding::Model model, const Options& options)
      : model_(std::move(model)), precision_(options.precision), pinned_(pinned_units(model_)) {
    if (options.autocast) autocast_.emplace(*options.autocast, model::Autocast::Weights::kept);
  }

  Tensors forward(Tensors inputs, const Batch& batch) override {
    begin_forward(batch);
    const model::Autocast::Scope scope(autocast_ ? &*autocast_ : nullptr);
    for (size_t i = 0; i < model_.units.size(); ++i)
      inputs = run_cast(*model_.units[i], std::move(inputs), batch, pinned_[i] ? Precision() : precision_);
    return inputs;
  }
  bool can_host_forward() const override { return true; }
  void begin_forward(const Batch&) override {
    if (stale_) refresh();
    if (between_steps_ && at::GradMode::is_enabled()) begin_step();
  }
  UnitPrecision unit_precision(size_t unit) const override {
    return pinned_[unit] ? UnitPrecision() : of_host(precision_);
  }
  std::optional<at::ScalarType> autocast() const override {
    return autocast_ ? std::optional(autocast_->dtype()) : std::nullopt;
  }
  void finish_gradients() override {
    for (sharding::Gradients* gradients : model_.order) gradients->place({});
    wait_for_moved_gradients(model_);
    between_steps_ = true;
  }
  std::span<Shard> owned() override { return model_.shards; }
  void parameters_changed(ParametersChange) override {
    stale_ = true;
    if (autocast_) autocast_->parameters_changed();
  }
  bool can_restart() const override { return true; }
  void restart_step() override { between_steps_ = true; }
  std::vector<WholeParameter> hold_whole() override {
    if (stale_) refresh();
    std::vector<WholeParameter> whole;
    for (const sharding::Parameter& parameter : model_.parameters)
      whole.push_back({parameter.name, parameter.leaf.detach()});
    return whole;
  }

 private:
  void refresh() {
    const at::NoGradGuard no_gradients;
    for (const auto& group : model_.buckets) group->gather();  // copies the values
    stale_ = false;
  }
  void begin_step() {
    for (sharding::Gradients* gradients : model_.order) gradients->begin_step();
    between_steps_ = false;
  }

  sharding::Model model_;
  Precision precision_;
  std::vector<char> pinned_;
  std::optional<model::Autocast> autocast_;
  bool stale_ = true, between_steps_ = true;
};

}  // namespace

std::unique_ptr<ParallelStage> make_local_stage(sharding::Model model, const Options& options) {
  return std::make_unique<LocalStage>(std::move(model), options);
}

}  // namespace heddle::fsdp2
