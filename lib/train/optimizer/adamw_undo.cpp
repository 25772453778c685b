// Copies of an update's inputs, and putting them back: an exact undo costs memory, not accuracy.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/empty_like.h>

#include "lib/train/optimizer/adamw.h"

namespace heddle::train {
namespace {

// Makes the copies when first used; later ones are written into the same memory.
void copy_all(std::vector<at::Tensor>& to, at::TensorList from) {
  if (to.empty())
    for (const at::Tensor& tensor : from) to.push_back(at::empty_like(tensor));
  at::_foreach_copy_(to, from);
}

}  // namespace

void AdamW::keep(bool state, bool gradients) {
  const at::NoGradGuard no_gradients;
  for (Group& group : groups_) {
    Kept& kept = group.kept;
    kept.state = state;
    if (state) {
      copy_all(kept.weights, group.weights);
      copy_all(kept.averages, group.averages);
      copy_all(kept.squares, group.squares);
      if (!kept.all_steps.defined()) kept.all_steps = at::empty_like(group.all_steps);
      kept.all_steps.copy_(group.all_steps);
    }
    kept.had.assign(group.shards.size(), 0);
    if (gradients) keep_gradients(group);
  }
}

void AdamW::keep_gradients(Group& group) {
  Kept& kept = group.kept;
  kept.gradients.resize(group.shards.size());
  for (size_t i = 0; i < group.shards.size(); ++i) {
    const at::Tensor& gradient = group.shards[i]->tensor.grad();
    kept.had[i] = gradient.defined() ? 1 : 0;
    if (!gradient.defined()) continue;
    if (!kept.gradients[i].defined()) kept.gradients[i] = at::empty_like(gradient);
    kept.gradients[i].copy_(gradient);
  }
}

void AdamW::undo() {
  const at::NoGradGuard no_gradients;
  for (Group& group : groups_) undo(group);
}

void AdamW::undo(Group& group) {
  Kept& kept = group.kept;
  if (kept.state) {
    copy_all(group.weights, kept.weights);
    copy_all(group.averages, kept.averages);
    copy_all(group.squares, kept.squares);
    group.all_steps.copy_(kept.all_steps);
  }
  for (size_t i = 0; i < group.shards.size(); ++i) {
    if (kept.state) store_weights(group, i);
    if (kept.had[i]) group.shards[i]->tensor.mutable_grad() = kept.gradients[i];
  }
}

}  // namespace heddle::train
