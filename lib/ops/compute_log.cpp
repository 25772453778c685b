// Sums over what was recorded.
#include "heddle/ops/compute_log.h"

#include <algorithm>

namespace heddle {

OperatorCost ComputeLog::total(int64_t from) const {
  OperatorCost sum;
  for (const OperatorCall& call : calls) {
    if (call.moment < from) continue;
    sum.operations += call.cost.operations;
    sum.read += call.cost.read;
    sum.written += call.cost.written;
  }
  return sum;
}

int64_t ComputeLog::alive(int64_t moment) const {
  int64_t bytes = 0;
  for (const Allocation& one : allocations)
    if (one.begin < moment && (one.end == Allocation::kAlive || one.end >= moment)) bytes += one.bytes;
  return bytes;
}

int64_t ComputeLog::peak(int64_t from) const {
  std::vector<std::pair<int64_t, int64_t>> changes;  // moment, bytes
  for (const Allocation& one : allocations) {
    changes.emplace_back(one.begin, one.bytes);
    if (one.end != Allocation::kAlive) changes.emplace_back(one.end, -one.bytes);
  }
  std::sort(changes.begin(), changes.end());
  int64_t now = 0, most = alive(from);
  for (const auto& [moment, bytes] : changes) {
    now += bytes;
    if (moment >= from) most = std::max(most, now);
  }
  return most;
}

}  // namespace heddle
