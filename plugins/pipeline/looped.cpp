// Fill and drain with several stages a rank: breadth first (all microbatches of a stage before the next
// stage) or depth first (rounds of as many microbatches as there are ranks go through all stages).
#include <algorithm>

#include "schedules.h"

namespace heddle::pipeline {
namespace {

// Rounds of `round` microbatches, each through all stages of the rank; backwards in the reverse order.
ScheduleTable in_rounds(const Sizes& sizes, int round) {
  ScheduleTable table(sizes.ranks);
  for (int rank = 0; rank < sizes.ranks; ++rank) {
    std::vector<Action>& row = table[rank];
    for (int first = 0; first < sizes.microbatches; first += round)
      for (int stage = rank; stage < sizes.stages; stage += sizes.ranks)
        for (int at = first; at < std::min(first + round, sizes.microbatches); ++at)
          row.push_back({Action::forward, stage, at});
    for (size_t at = row.size(); at-- > 0;)
      row.push_back({Action::backward, row[at].stage, row[at].microbatch});
  }
  return table;
}

}  // namespace

ScheduleTable looped_bfs(const Sizes& sizes) {
  return in_rounds(sizes, sizes.microbatches);
}

ScheduleTable dfs(const Sizes& sizes) {
  return in_rounds(sizes, sizes.ranks);
}

}  // namespace heddle::pipeline
