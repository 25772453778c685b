// The backward: units are gathered again before theirs, freed when it has passed, and reduced when their
// gradients have come.
#include "sharded_stage.h"

namespace heddle::fsdp2 {

// The backward of the units above is through. Before that a unit's parameters are still needed, also when
// they have their gradients: for the gradient of its input. A group of several units stays to the end, as a
// rank whose backward ended early would gather it once less than the others.
void ShardedStage::approach(size_t unit) {
  std::vector<Run>& runs = model_->runs;
  for (size_t above = unit + 1; above < runs.size(); ++above)
    for (Group* group : runs[above].groups)
      if (group->users == 1 && may_free(*group)) group->free(memory_);
  start(runs[unit]);
}

void ShardedStage::enter(size_t unit) {
  finish(model_->runs[unit]);
  start_below(unit);
}

void ShardedStage::start_below(size_t unit) {
  int64_t left = options_.ahead.backward;
  while (left > 0 && unit-- > 0)
    if (walk_.has_backward(unit)) {
      start(model_->runs[unit]);
      --left;
    }
}

bool ShardedStage::may_free(const Group& group) const {
  return last_backward_ || group.stay != Stay::until_last_backward;
}

// What a drain completes before the last microbatch waits for it.
void ShardedStage::complete(size_t bucket) {
  const bool waits = !last_backward_ && options_.defer_reduction;
  if (walk_.draining() && waits) return;
  Gradients& gradients = model_->gradients[bucket];
  if (waits)
    gradients.widen();
  else if (gradients.group().sharded())
    reducer_.ready(gradients);
}

// On a rank whose backward ended early the reductions go first: others may wait for them before they come to
// the gathers that are left here.
void ShardedStage::ended(WeightGradients* queue) {
  if (queue != nullptr)
    for (Gradients& gradients : model_->gradients) gradients.widen();
  else
    end_microbatch();
  for (Group& group : model_->groups) {
    group.finish(memory_);
    if (may_free(group)) group.free(memory_);
  }
}

void ShardedStage::drained() {
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
