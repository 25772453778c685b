// The backward: units are gathered again before theirs, freed and reduced when their gradients have come.
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <utility>

#include "heddle/parallel/after_gradient.h"
#include "stage.h"

namespace heddle::megatron_fsdp {

// The gradient of a parameter of several units may come in parts, one from each unit that is computed again,
// so it is not counted: its bucket is complete when the backward ends.
void Stage::attach_gradient_hooks() {
  for (Gradients& gradients : model_->gradients) {
    for (Member& member : gradients.bucket().members()) {
      member.accumulator = torch::autograd::impl::grad_accumulator(member.leaf);
      owners_.emplace(member.accumulator.get(), &gradients);
      if (member.users > 1) continue;
      member.accumulator->add_post_hook(
          std::make_unique<AfterGradient>([this, &gradients] { gradient_arrived(gradients); }));
    }
  }
}

// The first queue that no microbatch uses, told to defer.
WeightGradients* Stage::own_queue() {
  if (idle_queues_.empty()) idle_queues_.push_back(&queues_.emplace_back());
  WeightGradients* queue = idle_queues_.back();
  idle_queues_.pop_back();
  queue->defer();
  return queue;
}

// Says whether a backward will come.
bool Stage::watch(const Tensors& outputs, size_t index, WeightGradients* queue) {
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
void Stage::begin_backward(WeightGradients* queue) {
  if (in_backward_) return;
  in_backward_ = true;
  split_ = queue != nullptr && queue->defers();
  if (split_) {
    queue->when_draining([this](const WeightGradients::Accumulators& leaves) { begin_drain(leaves); });
    queue->when_drained([this] { end_drain(); });
  }
  unprepared_ = model_->runs.size();
  torch::autograd::Engine::get_default_engine().queue_callback([this, queue] { end_backward(queue); });
}

// Units that got no gradient on this rank are gathered all the same, because on other ranks they may have.
void Stage::before_backward(size_t index, WeightGradients* queue) {
  begin_backward(queue);
  if (index >= unprepared_) return;
  std::vector<Run>& runs = model_->runs;
  while (unprepared_ > index)
    if (Run& run = runs[--unprepared_]; run.has_backward) start(run);
  finish(runs[index]);
  for (Gradients* sums : runs[index].sums) {
    reducer_->wait_for(*sums);  // of the microbatch before
    sums->open();
  }
  // The units above are through, so what had no gradient to wait for can go.
  if (index + 1 < runs.size())
    for (Bucket* bucket : runs[index + 1].buckets)
      if ((split_ || !bucket->trainable()) && bucket->users == 1 && !bucket->kept) free(*bucket);
  gather_behind(index);
}

void Stage::gather_behind(size_t index) {
  if (room_ == 0 || !options_.split.parameters) return;
  int64_t room = room_;
  const bool by_turns = options_.buffering != Buffering::from_the_allocator;
  for (size_t below = index; below-- > 0;) {
    if (!model_->runs[below].has_backward) continue;
    room = start_within(model_->runs[below], room);
    if (room < 0 || by_turns) return;
  }
}

// In the first half of a split backward nothing is complete.
void Stage::gradient_arrived(Gradients& gradients) {
  if (in_backward_ ? split_ : !draining_) return;
  if (++gradients.arrived == gradients.members()) complete(gradients);
}

void Stage::complete(Gradients& gradients) {
  Bucket& bucket = gradients.bucket();
  if (bucket.users == 1 && !bucket.kept) free(bucket);
  if (!reduces(gradients) || checks_.parameters()) return;
  reducer_->ready(gradients);
}

// A backward that ended early here goes on elsewhere: what other ranks may wait for is launched, the gathers
// that are left and then the reductions, before anything is waited for.
void Stage::end_backward(WeightGradients* queue) {
  in_backward_ = false;
  while (unprepared_ > 0)
    if (Run& run = model_->runs[--unprepared_]; run.has_backward) start(run);
  for (Gradients& gradients : model_->gradients) gradients.arrived = 0;
  if (!split_) end_microbatch();
  for (Bucket& bucket : model_->buckets) {
    bucket.finish();
    if (!bucket.kept || last_backward_) free(bucket);
  }
  if (split_ && !queues_.empty()) queue->drain();
}

// All but these have their gradients already.
void Stage::begin_drain(const WeightGradients::Accumulators& leaves) {
  draining_ = true;
  for (Gradients& gradients : model_->gradients) gradients.arrived = gradients.members();
  for (const torch::autograd::Node* leaf : leaves)
    if (const auto owner = owners_.find(leaf); owner != owners_.end()) {
      Gradients& gradients = *owner->second;
      --gradients.arrived;
      if (!gradients.split()) continue;
      reducer_->wait_for(gradients);  // of the microbatch before
      gradients.open();
    }
  for (Gradients& gradients : model_->gradients)
    if (gradients.arrived == gradients.members()) complete(gradients);
}

void Stage::end_drain() {
  draining_ = false;
  for (Gradients& gradients : model_->gradients) gradients.arrived = 0;
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
