// The profiler's times are of the system clock; the trace's are of the steady one.
#include "lib/run/trace/operators.h"

#include <torch/csrc/autograd/profiler_kineto.h>

#include <algorithm>
#include <cstdlib>
#include <set>

namespace heddle {
namespace {

using torch::profiler::impl::ActivityType;

std::chrono::nanoseconds now_of_system() {
  return std::chrono::system_clock::now().time_since_epoch();
}

}  // namespace

void OperatorProfile::start() {
  // Without a GPU the profiler's library writes an error on each rank, as of nothing.
  setenv("KINETO_LOG_LEVEL", "99", /*overwrite=*/0);
  using torch::profiler::impl::ProfilerConfig;
  using torch::profiler::impl::ProfilerState;
  const ProfilerConfig config(ProfilerState::KINETO);
  const std::set<ActivityType> activities = {ActivityType::CPU};
  torch::autograd::profiler::prepareProfiler(config, activities);
  torch::autograd::profiler::enableProfiler(config, activities);
  system_ahead_ = now_of_system() - std::chrono::steady_clock::now().time_since_epoch();
}

std::vector<RanOperator> OperatorProfile::stop() {
  const auto result = torch::autograd::profiler::disableProfiler();
  std::vector<RanOperator> operators;
  for (const auto& event : result->events()) {
    const auto begin =
        RanAction::Time(std::chrono::nanoseconds(static_cast<int64_t>(event.startNs())) - system_ahead_);
    operators.push_back({event.name(), event.startThreadId(), begin,
                         begin + std::chrono::nanoseconds(static_cast<int64_t>(event.durationNs()))});
  }
  std::stable_sort(operators.begin(), operators.end(),
                   [](const RanOperator& one, const RanOperator& two) { return one.begin < two.begin; });
  return operators;
}

}  // namespace heddle
