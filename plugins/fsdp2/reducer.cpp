// Launching in order, two buffers in turn, and the sum over replicas at the end of the step.
#include "reducer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

namespace heddle::fsdp2 {
namespace {

// The start of the slot's buffer in the right dtype; made when first used, large enough for every group.
at::Tensor piece(at::Tensor& buffer, const Gradients& gradients, int64_t elements, int64_t largest) {
  if (!buffer.defined() || buffer.scalar_type() != gradients.dtype() ||
      buffer.device() != gradients.sum.device())
    buffer = at::empty({largest}, gradients.sum.options());
  return buffer.narrow(0, 0, elements);
}

}  // namespace

Reducer::Reducer(std::unique_ptr<Communicator> shard, Communicator* replicate, std::vector<Gradients*> order)
    : shard_(std::move(shard)), replicate_(replicate) {
  for (Gradients* gradients : order) {
    order_.emplace_back();
    order_.back().gradients = gradients;
    gradients->turn = order_.size() - 1;
    largest_ = std::max(largest_, gradients->part());
  }
}

void Reducer::expect_last() {
  last_ = true;
}

void Reducer::ready(Gradients& gradients) {
  order_[gradients.turn].ready = true;
  while (next_ < order_.size() && order_[next_].ready) launch(*order_[next_++].gradients);
}

void Reducer::flush() {
  while (next_ < order_.size()) launch(*order_[next_++].gradients);
  for (Entry& entry : order_) entry.ready = false;
  next_ = 0;
}

void Reducer::launch(Gradients& gradients) {
  Slot& slot = slots_[turn_];
  turn_ = 1 - turn_;
  settle(slot);
  const at::Tensor input =
      piece(slot.input, gradients, shard_->size() * gradients.part(), shard_->size() * largest_);
  gradients.pack(input);
  const at::Tensor output =
      gradients.summed ? piece(slot.output, gradients, gradients.part(), largest_) : gradients.sum;
  slot.adds = gradients.summed;
  slot.last = last_;
  gradients.summed = true;
  slot.busy = &gradients;
  slot.work = shard_->reduce_scatter(output, input);
}

void Reducer::settle(Slot& slot) {
  if (slot.busy == nullptr) return;
  slot.work->wait();
  slot.work.reset();
  if (slot.adds) {
    at::NoGradGuard no_gradients;
    slot.busy->sum.add_(slot.output.narrow(0, 0, slot.busy->part()));
  }
  if (slot.last && replicate_ != nullptr)
    order_[slot.busy->turn].replicas = replicate_->all_reduce(slot.busy->sum);
  slot.busy = nullptr;
}

void Reducer::finish() {
  settle(slots_[turn_]);
  settle(slots_[1 - turn_]);
  last_ = false;
  if (replicate_ == nullptr) return;
  for (Entry& entry : order_)
    if (!entry.replicas) entry.replicas = replicate_->all_reduce(entry.gradients->sum);
  for (Entry& entry : order_) {
    entry.replicas->wait();
    entry.replicas.reset();
  }
}

}  // namespace heddle::fsdp2
