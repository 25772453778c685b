// Launching in order, two buffers in turn, and the sum over replicas at the end of the step.
#include "reducer.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "heddle/mesh/shared_memory.h"

namespace heddle::fsdp2 {
Reducer::Reducer(std::vector<Gradients*> order) {
  for (Gradients* gradients : order) {
    order_.emplace_back();
    order_.back().gradients = gradients;
    gradients->turn = order_.size() - 1;
  }
  for (Slot& slot : slots_) {
    slot.inputs.resize(order_.size());
    slot.outputs.resize(order_.size());
  }
}

// The start of a buffer that is large enough for every group of this dtype.
const at::Tensor& Reducer::piece(std::vector<at::Tensor>& pieces, const Gradients& gradients,
                                 int64_t ranks) const {
  at::Tensor& found = pieces[gradients.turn];
  if (found.defined()) return found;
  int64_t largest = 0;
  at::Tensor buffer;
  for (size_t turn = 0; turn < order_.size(); ++turn) {
    const Gradients& other = *order_[turn].gradients;
    if (other.dtype() != gradients.dtype() || other.sum.device() != gradients.sum.device() ||
        other.scatters != gradients.scatters)
      continue;
    largest = std::max(largest, other.part());
    if (pieces[turn].defined()) buffer = pieces[turn];
  }
  if (!buffer.defined())
    buffer = mesh::shared_empty(*gradients.scatters, {ranks * largest}, gradients.sum.options());
  const int64_t elements = ranks * gradients.part();
  return found = buffer.as_strided({elements}, {1}, 0);
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
  const at::Tensor& input = piece(slot.inputs, gradients, gradients.scatters->size());
  gradients.pack(input);
  const at::Tensor& output = gradients.summed ? piece(slot.outputs, gradients, 1) : gradients.sum;
  slot.adds = gradients.summed;
  slot.last = last_;
  gradients.summed = true;
  slot.busy = &gradients;
  slot.work = gradients.scatters->reduce_scatter(output, input);
}

void Reducer::settle(Slot& slot) {
  if (slot.busy == nullptr) return;
  slot.work->wait();
  slot.work.reset();
  if (slot.adds) {
    at::NoGradGuard no_gradients;
    slot.busy->sum.add_(slot.outputs[slot.busy->turn]);
  }
  if (Communicator* copies = slot.busy->group().copies(); slot.last && copies != nullptr)
    order_[slot.busy->turn].replicas = copies->all_reduce(slot.busy->sum);
  slot.busy = nullptr;
}

void Reducer::finish() {
  settle(slots_[turn_]);
  settle(slots_[1 - turn_]);
  last_ = false;
  for (Entry& entry : order_)
    if (Communicator* copies = entry.gradients->group().copies(); copies != nullptr && !entry.replicas)
      entry.replicas = copies->all_reduce(entry.gradients->sum);
  for (Entry& entry : order_)
    if (const std::unique_ptr<Work> sum = std::move(entry.replicas)) sum->wait();
}

}  // namespace heddle::fsdp2
