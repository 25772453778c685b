// The backward: units are gathered again before theirs, freed and reduced when their gradients have come.
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

void Stage::approach(size_t unit) {
  start(model_->runs[unit]);
}

void Stage::enter(size_t unit) {
  std::vector<Run>& runs = model_->runs;
  finish(runs[unit]);
  for (Gradients* sums : runs[unit].sums) {
    reducer_->wait_for(*sums);  // of the microbatch before
    sums->open();
  }
  // The units above are through, so what had no gradient to wait for can go.
  if (unit + 1 < runs.size())
    for (Bucket* bucket : runs[unit + 1].buckets)
      if ((walk_.split() || !bucket->trainable()) && bucket->users == 1 && !bucket->kept) free(*bucket);
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
  Bucket& parameters = gradients.bucket();
  if (parameters.users == 1 && !parameters.kept) free(parameters);
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
