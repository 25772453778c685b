// The backward: units are gathered again before theirs, freed when it has passed, and reduced when their
// gradients have come.
#include "stage.h"

namespace heddle::megatron_fsdp {

// The first queue that no microbatch uses, told to defer.
WeightGradients* Stage::own_queue() {
  if (idle_queues_.empty()) idle_queues_.push_back(&queues_.emplace_back());
  WeightGradients* queue = idle_queues_.back();
  idle_queues_.pop_back();
  queue->defer();
  return queue;
}

// The backward of the units above is through. Before that a unit's parameters are still needed, also when
// they have their gradients: for the gradient of its input. A bucket of several units stays to the end, as a
// rank whose backward ended early would gather it once less than the others.
void Stage::approach(size_t unit) {
  std::vector<Run>& runs = model_->runs;
  for (size_t above = unit + 1; above < runs.size(); ++above)
    for (Bucket* bucket : runs[above].buckets)
      if (bucket->users == 1 && !bucket->kept) free(*bucket);
  start(runs[unit]);
}

void Stage::enter(size_t unit) {
  std::vector<Run>& runs = model_->runs;
  finish(runs[unit]);
  for (Gradients* sums : runs[unit].sums) {
    reducer_->wait_for(*sums);  // of the microbatch before
    sums->open();
  }
  gather_behind(unit);
}

void Stage::gather_behind(size_t index) {
  if (room_ == 0 || !options_.split.parameters) return;
  int64_t room = room_;
  const bool by_turns = options_.buffering != Buffering::from_the_allocator;
  for (size_t below = index; below-- > 0;) {
    if (!walk_.has_backward(below)) continue;
    room = start_within(model_->runs[below], room);
    if (room < 0 || by_turns) return;
  }
}

void Stage::complete(size_t bucket) {
  Gradients& gradients = model_->gradients[bucket];
  if (!reduces(gradients) || checks_.parameters()) return;
  reducer_->ready(gradients);
}

// A backward that ended early here goes on elsewhere: what other ranks may wait for is launched, the gathers
// that are left and then the reductions, before anything is waited for.
void Stage::ended(WeightGradients* queue) {
  if (queue == nullptr) end_microbatch();
  for (Bucket& bucket : model_->buckets) {
    bucket.finish();
    if (!bucket.kept || last_backward_) free(bucket);
  }
  if (queue != nullptr && !queues_.empty()) queue->drain();
}

void Stage::awaits(size_t bucket) {
  Gradients& gradients = model_->gradients[bucket];
  if (!gradients.split()) return;
  reducer_->wait_for(gradients);  // of the microbatch before
  gradients.open();
}

void Stage::drained() {
  if (!queues_.empty()) {
    idle_queues_.clear();
    for (WeightGradients& queue : queues_)
      if (queue.empty() && !queue.defers()) idle_queues_.push_back(&queue);
  }
  end_microbatch();
  if (last_backward_)
    for (Bucket& bucket : model_->buckets) free(bucket);
}

// Buckets that are not split are reduced when all microbatches are through.
void Stage::end_microbatch() {
  if (checks_.parameters())
    for (const Gradients& gradients : model_->gradients) checks_.look_at_parameters(gradients, microbatch_);
  ++microbatch_;
  if (last_backward_) return reduce_gradients();
  if (options_.split.gradients) reducer_->flush();
}

}  // namespace heddle::megatron_fsdp
