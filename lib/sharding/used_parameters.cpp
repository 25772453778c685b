// Flags, their maximum over the ranks that share them, and placing the sums.
#include "used_parameters.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

namespace heddle::sharding {

UsedParameters::UsedParameters(const Model& model, const Groups& groups) {
  for (const auto& bucket : model.buckets) {
    Gradients* gradients = bucket->gradients();
    if (gradients == nullptr) continue;
    const std::vector<Parameter> all = bucket->parameters();
    const auto trained = static_cast<size_t>(
        std::count_if(all.begin(), all.end(), [](const Parameter& one) { return one.trainable(); }));
    const Groups& shared = gradients->groups() == nullptr ? groups : *gradients->groups();
    Sum& sum = sum_over(shared.all);
    sum.parts.push_back({gradients, trained});
    sum.used.resize(sum.used.size() + trained);
  }
  for (Sum& sum : sums_) {
    sum.mine = at::zeros({static_cast<int64_t>(sum.used.size())}, at::kFloat);
    if (sum.used.empty()) sum.ranks = nullptr;
  }
}

UsedParameters::Sum& UsedParameters::sum_over(Communicator* ranks) {
  for (Sum& sum : sums_)
    if (sum.ranks == ranks) return sum;
  Sum& added = sums_.emplace_back();
  added.ranks = ranks;
  return added;
}

void UsedParameters::start() {
  for (Sum& sum : sums_) {
    float* flag = sum.mine.data_ptr<float>();
    for (const Part& part : sum.parts)
      for (size_t i = 0; i < part.count; ++i) *flag++ = part.gradients->had(i) ? 1 : 0;
    if (sum.ranks == nullptr) continue;
    sum.any = sum.mine.clone();
    sum.work = sum.ranks->all_reduce(sum.any, Reduce::max);
  }
}

void UsedParameters::finish() {
  for (Sum& sum : sums_) {
    if (sum.work) std::exchange(sum.work, {})->wait();
    const float* flag = (sum.ranks == nullptr ? sum.mine : sum.any).const_data_ptr<float>();
    for (char& used : sum.used) used = *flag++ > 0;
    size_t first = 0;
    for (const Part& part : sum.parts) {
      part.gradients->place({sum.used.data() + first, part.count});
      first += part.count;
    }
  }
}

void UsedParameters::abandon() noexcept {
  for (Sum& sum : sums_) {
    try {
      if (sum.work) sum.work->wait();
    } catch (...) {  // a rank is lost; the error was thrown to the waiting caller
    }
  }
}

}  // namespace heddle::sharding
