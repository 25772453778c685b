// The backward: units are gathered again before theirs, freed when it has passed, and reduced when their
// gradients have come.
#include <algorithm>

#include "heddle/sharding/stage.h"
#include "host_forward.h"
#include "reducer.h"

namespace heddle::sharding {

// The backward of the units above is done. Before that a unit's parameters are still needed for the gradient
// of its input, even if their own gradients are complete. A bucket of several units stays to the end, because
// a rank whose backward ended early would gather it once less than the others.
// What a unit above has no gradient of on this rank is reduced now as zero: another rank may wait for that
// before it comes to the gathers that this one waits for.
// A backward of several forwards reduces nothing behind, and may wait for gathers: on every rank what its
// walk has passed is gathered again for the next forward.
void ShardedStage::approach(size_t unit) {
  const bool begins_again = passed_ == 0, defers = host_ && host_->deferring;
  const size_t end = begins_again ? model_.turns.size() : passed_;
  for (size_t above = begins_again ? 0 : unit + 1; above < end; ++above)
    for (const Model::Use& use : model_.turns[above].uses) {
      const bool around = use.bucket->around_;
      if (use.bucket->users_ > 1 || (around && host_->ran[above] != 0)) continue;
      if (Gradients* gradients = use.bucket->gradients(); gradients != nullptr && !walk_.split())
        reduce_behind(*gradients);
      if (around || !may_free(*use.bucket)) continue;
      if (defers) finish(*use.bucket);
      free(*use.bucket);
    }
  passed_ = unit + 1;
  start(model_.turns[unit]);
}

void ShardedStage::enter(size_t unit) {
  const Turn& turn = model_.turns[unit];
  finish(turn);
  open_gradients(turn);
  gather_behind(unit);
}

void ShardedStage::open_gradients(const Turn& turn) {
  for (Gradients* gradients : turn.opens) {
    reducer_->wait_for(*gradients);  // of the microbatch before
    gradients->open();
  }
}

void ShardedStage::gather_behind(size_t unit) {
  Lookahead left = policy_.backward;
  if (sharded_ == 0 || left.elements == 0) return;
  while (unit-- > 0 && left.units > 0) {
    if (!walk_.has_backward(unit)) continue;
    if (!start_within(model_.turns[unit], left.elements)) return;
    --left.units;
  }
}

// Gradients completed by a drain before the last microbatch wait for it.
void ShardedStage::complete(size_t bucket) {
  Gradients& gradients = *trained_[bucket];
  if (last_backward_ || policy_.reduce_each_microbatch)
    reduce_behind(gradients);
  else if (!walk_.draining())
    gradients.keep();
}

void ShardedStage::reduce_behind(Gradients& gradients) {
  if (!policy_.reduce_behind_backward || !(last_backward_ || policy_.reduce_each_microbatch)) return;
  if (host_ && host_->deferring) return;
  if (last_backward_) reducer_->expect_last();
  reducer_->ready(gradients);
}

// On a rank whose backward ended early the reductions go first: others may wait for them before they reach
// the gathers that remain here.
void ShardedStage::ended(WeightGradients* queue) {
  passed_ = model_.turns.size();
  if (queue == nullptr)
    end_microbatch();
  else
    for (Gradients* gradients : model_.order) gradients->keep();
  for (const auto& bucket : model_.buckets) {
    finish(*bucket);
    if (may_free(*bucket)) free(*bucket);
  }
  last_ended_ = last_backward_ && queue == nullptr;
  if (!host_) return;
  host_->pending = std::max<int64_t>(host_->pending - host_->passed, 0);
  host_->deferring = false;
}

void ShardedStage::awaits(size_t bucket) {
  Gradients& gradients = *trained_[bucket];
  if (!gradients.opens()) return;
  reducer_->wait_for(gradients);  // of the microbatch before
  gradients.open();
}

void ShardedStage::drained() {
  end_microbatch();
  last_ended_ = last_backward_;
}

void ShardedStage::end_microbatch() {
  microbatch_complete();
  if (last_backward_) {
    for (const auto& bucket : model_.buckets) free(*bucket);
    return reduce_gradients();
  }
  if (policy_.reduce_each_microbatch) return reducer_->flush(/*last=*/false);
  for (Gradients* gradients : model_.order) gradients->keep();
}

}  // namespace heddle::sharding
