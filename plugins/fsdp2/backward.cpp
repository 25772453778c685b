// The backward: units are gathered again before theirs, freed and reduced when their gradients have come.
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <utility>

#include "heddle/parallel/after_gradient.h"
#include "sharded_stage.h"

namespace heddle::fsdp2 {

// The gradient of a parameter of several units may come in parts, one from each unit that is computed again,
// so it is not counted: its group is complete when the backward ends.
void ShardedStage::attach_gradient_hooks() {
  for (Gradients& gradients : model_->gradients) {
    for (Parameter& parameter : gradients.group().parameters()) {
      if (!parameter.trainable) continue;
      parameter.accumulator = torch::autograd::impl::grad_accumulator(parameter.leaf);
      owners_.emplace(parameter.accumulator.get(), &gradients.group());
      if (gradients.group().users > 1) continue;
      parameter.accumulator->add_post_hook(
          std::make_unique<AfterGradient>([this, &gradients] { gradient_arrived(gradients); }));
    }
  }
}

// Called when a gradient of a unit's output has come, before the unit's own backward begins.
struct BackwardReached final : torch::autograd::FunctionPreHook {
  BackwardReached(ShardedStage& stage, size_t index, WeightGradients* queue)
      : stage(stage), index(index), queue(queue) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& gradients) override {
    stage.before_backward(index, queue);
    return gradients;
  }
  ShardedStage& stage;
  const size_t index;
  WeightGradients* const queue;
};

// Says whether a backward will come. One hook on a node is enough for all that it returns.
bool ShardedStage::watch(const Tensors& outputs, size_t index, WeightGradients* queue) {
  if (!at::GradMode::is_enabled()) return false;
  const torch::autograd::Node* watched = nullptr;
  bool any = false;
  for (const at::Tensor& output : outputs) {
    if (!output.defined() || !output.requires_grad()) continue;
    any = true;
    const auto& node = output.grad_fn();
    if (node == nullptr) {  // an input that comes out as it is
      output.register_hook([this, index, queue](const at::Tensor&) { before_backward(index, queue); });
    } else if (node.get() != watched) {
      node->add_tensor_pre_hook(std::make_unique<BackwardReached>(*this, index, queue));
      watched = node.get();
    }
  }
  return any;
}

// Called by hooks on outputs of units, never by those on leaves: where a unit is computed again these run in
// a nested backward, whose end is not the end.
void ShardedStage::begin_backward(WeightGradients* queue) {
  if (in_backward_) return;
  in_backward_ = true;
  split_ = queue != nullptr && queue->defers();
  if (split_) {
    queue->when_draining([this](const WeightGradients::Accumulators& leaves) { begin_drain(leaves); });
    queue->when_drained([this] { end_drain(); });
  }
  unprepared_ = model_->runs.size();
  torch::autograd::Engine::get_default_engine().queue_callback([this] { end_backward(); });
}

// Units that got no gradient on this rank are gathered all the same, because on other ranks they may have.
void ShardedStage::before_backward(size_t index, WeightGradients* queue) {
  begin_backward(queue);
  if (index >= unprepared_) return;
  std::vector<Run>& runs = model_->runs;
  while (unprepared_ > index)
    if (Run& run = runs[--unprepared_]; run.has_backward) start(run);
  finish(runs[index]);
  // The units above are through, so what had no gradient to wait for can go.
  for (size_t above = index + 1; above < runs.size(); ++above)
    for (Group* group : runs[above].groups)
      if ((split_ || !group->all_trainable()) && may_free(*group) && !runs[index].uses(group))
        group->free(memory_);
  start_below(index);
}

void ShardedStage::start_below(size_t index) {
  int64_t left = options_.ahead.backward;
  while (left > 0 && index-- > 0)
    if (Run& run = model_->runs[index]; run.has_backward) {
      start(run);
      --left;
    }
}

// In the first half of a split backward nothing is complete.
void ShardedStage::gradient_arrived(Gradients& gradients) {
  if (in_backward_ ? split_ : !draining_) return;
  if (++gradients.group().arrived == gradients.group().trainable()) complete(gradients);
}

bool ShardedStage::may_free(const Group& group) const {
  return last_backward_ || group.stay != Stay::until_last_backward;
}

// A frozen parameter may still be needed for the gradient of the unit's input.
void ShardedStage::complete(Gradients& gradients) {
  Group& group = gradients.group();
  if (group.all_trainable() && may_free(group)) group.free(memory_);
  if (last_backward_ || !options_.defer_reduction)
    reducer_.ready(gradients);
  else
    gradients.widen();
}

// On a rank whose backward ended early the reductions go first: others may wait for them before they come to
// the gathers that are left here.
void ShardedStage::end_backward() {
  in_backward_ = false;
  while (unprepared_ > 0)
    if (Run& run = model_->runs[--unprepared_]; run.has_backward) start(run);
  for (Group& group : model_->groups) group.arrived = 0;
  if (split_)
    for (Gradients& gradients : model_->gradients) gradients.widen();
  else
    end_microbatch();
  for (Group& group : model_->groups) {
    group.finish(memory_);
    if (may_free(group)) group.free(memory_);
  }
}

// All but these have their gradients already.
void ShardedStage::begin_drain(const WeightGradients::Accumulators& leaves) {
  if (!last_backward_ && options_.defer_reduction) return;
  draining_ = true;
  for (Group& group : model_->groups) group.arrived = group.trainable();
  for (const torch::autograd::Node* leaf : leaves)
    if (const auto owner = owners_.find(leaf); owner != owners_.end()) --owner->second->arrived;
  for (Gradients& gradients : model_->gradients)
    if (gradients.group().arrived == gradients.group().trainable()) complete(gradients);
}

void ShardedStage::end_drain() {
  draining_ = false;
  for (Group& group : model_->groups) group.arrived = 0;
  end_microbatch();
}

void ShardedStage::end_microbatch() {
  if (!last_backward_ && options_.defer_reduction) {
    for (Gradients& gradients : model_->gradients) gradients.widen();
    return;
  }
  if (last_backward_)
    for (Group& group : model_->groups) group.free(memory_);
  reducer_.flush();
  flushed_ = last_backward_;
}

}  // namespace heddle::fsdp2
