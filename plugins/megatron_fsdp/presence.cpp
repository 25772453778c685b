// Flags, and placing the sums.
#include "presence.h"

#include <ATen/ops/zeros.h>

namespace heddle::megatron_fsdp {

Presence::Presence(const std::deque<Gradients>& gradients, Communicator* ranks)
    : gradients_(&gradients), ranks_(ranks) {
  int64_t count = 0;
  for (const Gradients& one : gradients) count += one.members();
  mine_ = at::zeros({count}, at::kFloat);
  if (count == 0) ranks_ = nullptr;
}

void Presence::start() {
  if (ranks_ == nullptr) return;
  float* flag = mine_.data_ptr<float>();
  for (const Gradients& one : *gradients_)
    for (int i = 0; i < one.members(); ++i) *flag++ = one.had(i) ? 1 : 0;
  any_ = mine_.clone();
  work_ = ranks_->all_reduce(any_, Reduce::max);
}

void Presence::finish(std::deque<Gradients>& gradients) {
  if (work_) work_->wait();
  work_.reset();
  int64_t index = 0;
  for (Gradients& one : gradients)
    for (int i = 0; i < one.members(); ++i, ++index)
      one.place(i, one.had(i) || (ranks_ != nullptr && any_.data_ptr<float>()[index] > 0));
}

}  // namespace heddle::megatron_fsdp
