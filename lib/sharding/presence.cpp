// Flags, their maximum over the ranks, and placing the sums.
#include "presence.h"

#include <ATen/ops/zeros.h>

#include <algorithm>

namespace heddle::sharding {

Presence::Presence(const Model& model, Communicator* ranks) : ranks_(ranks) {
  int64_t count = 0;
  for (const auto& bucket : model.buckets) {
    if (bucket->gradients() == nullptr) continue;
    const std::vector<Parameter> all = bucket->parameters();
    const auto trained = static_cast<size_t>(
        std::count_if(all.begin(), all.end(), [](const Parameter& one) { return one.trainable(); }));
    parts_.push_back({bucket->gradients(), trained});
    count += static_cast<int64_t>(trained);
  }
  mine_ = at::zeros({count}, at::kFloat);
  used_.resize(static_cast<size_t>(count));
  if (count == 0) ranks_ = nullptr;
}

void Presence::start() {
  float* flag = mine_.data_ptr<float>();
  for (const Part& part : parts_)
    for (size_t i = 0; i < part.count; ++i) *flag++ = part.gradients->had(i) ? 1 : 0;
  if (ranks_ == nullptr) return;
  any_ = mine_.clone();
  work_ = ranks_->all_reduce(any_, Reduce::max);
}

void Presence::finish() {
  if (work_) work_->wait();
  work_.reset();
  const float* flag = (ranks_ == nullptr ? mine_ : any_).const_data_ptr<float>();
  for (char& used : used_) used = *flag++ > 0;
  size_t first = 0;
  for (const Part& part : parts_) {
    part.gradients->place({used_.data() + first, part.count});
    first += part.count;
  }
}

void Presence::abandon() noexcept {
  try {
    if (work_) work_->wait();
  } catch (...) {  // a rank is gone, and whoever waited for it was told
  }
}

}  // namespace heddle::sharding
