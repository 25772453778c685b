// The stage of one data-parallel rank: whole parameters, and mixed precision where it is asked for.
#include <ATen/core/grad_mode.h>

#include <utility>

#include "stage.h"

namespace heddle::fsdp2 {
namespace {

class LocalStage : public ParallelStage {
 public:
  LocalStage(std::unique_ptr<Model> model, const Options& options)
      : model_(std::move(model)), precision_(options.precision) {
    if (options.autocast) autocast_.emplace(*options.autocast, model::Autocast::Weights::kept);
  }

  Tensors forward(Tensors inputs, const Batch& batch) override {
    if (stale_) refresh();
    if (between_steps_ && at::GradMode::is_enabled()) begin_step();
    const model::Autocast::Scope scope(autocast_ ? &*autocast_ : nullptr);
    for (Model::Run& turn : model_->runs)
      inputs = run(*turn.unit, std::move(inputs), batch, turn.pinned ? Precision() : precision_);
    return inputs;
  }
  void unshard() override {}
  void reshard() override {}
  void expect_last_backward() override {}
  void finish_gradients() override {
    model_->place_gradients();
    between_steps_ = true;
  }
  std::span<Shard> owned() override { return model_->shards; }
  void parameters_changed() override {
    stale_ = true;
    if (autocast_) autocast_->parameters_changed();
  }
  std::vector<WholeParameter> hold_whole() override {
    if (stale_) refresh();
    return model_->whole();
  }

 private:
  void refresh() {
    for (Group& group : model_->groups) group.refresh();
    stale_ = false;
  }
  void begin_step() {
    for (Gradients& gradients : model_->gradients) gradients.begin();
    between_steps_ = false;
  }

  std::unique_ptr<Model> model_;
  Precision precision_;
  std::optional<model::Autocast> autocast_;
  bool stale_ = true, between_steps_ = true;
};

}  // namespace

std::unique_ptr<ParallelStage> make_local_stage(std::unique_ptr<Model> model, const Options& options) {
  return std::make_unique<LocalStage>(std::move(model), options);
}

}  // namespace heddle::fsdp2
