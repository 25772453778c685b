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

// Says whether a backward will come.
bool ShardedStage::watch(const Tensors& outputs, size_t index, WeightGradients* queue) {
  if (!at::GradMode::is_enabled()) return false;
  bool any = false;
  for (const at::Tensor& output : outputs) {
    if (!output.defined() || !output.requires_grad()) continue;
    any = true;
    output.register_hook([this, index, queue](const at::Tensor&) { before_backward(index, queue); });
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
  if (index + 1 < runs.size())
    for (Group* group : runs[index + 1].groups)
      if ((split_ || !group->all_trainable()) && may_free(*group) && !runs[index].uses(group)) group->free();
  for (size_t below = index; below-- > 0;)
    if (runs[below].has_backward) return start(runs[below]);
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
  if (group.all_trainable() && may_free(group)) group.free();
  if (last_backward_ || !options_.defer_reduction)
    reducer_.ready(gradients);
  else
    gradients.widen();
}

void ShardedStage::end_backward() {
  in_backward_ = false;
  while (unprepared_ > 0)
    if (Run& run = model_->runs[--unprepared_]; run.has_backward) start(run);
  for (Group& group : model_->groups) {
    group.arrived = 0;
    group.finish(staging_);
    if (may_free(group)) group.free();
  }
  if (!split_) return end_microbatch();
  for (Gradients& gradients : model_->gradients) gradients.widen();
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
    for (Group& group : model_->groups) group.free();
  reducer_.flush();
  flushed_ = last_backward_;
}

}  // namespace heddle::fsdp2
