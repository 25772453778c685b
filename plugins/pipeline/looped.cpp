// Looped schedules with several stages per rank. Breadth first: all microbatches of a stage before the next
// stage. Depth first: rounds of as many microbatches as ranks go through all stages.
#include <algorithm>

#include "schedules.h"

namespace heddle::pipeline {
namespace {

// Runs rounds of `round` microbatches, each through all stages of the rank. Backwards run in reverse order.
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
