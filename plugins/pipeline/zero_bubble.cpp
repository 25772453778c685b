// One stage a rank, a backward in two parts: the input's is sent on at once, the weights' is deferred as long
// as the memory allows, and fills idle time.
#include <algorithm>

#include "schedules.h"

namespace heddle::pipeline {
namespace {

// `ahead` forwards before the first backward, and `late` deferred weights from then on.
std::vector<Action> row_of(int rank, int microbatches, int ahead, int late) {
  std::vector<Action> row;
  int forwards = 0, weights = 0;
  while (forwards < std::min(ahead, microbatches)) row.push_back({Action::forward, rank, forwards++});
  for (int at = 0; at < microbatches; ++at) {
    row.push_back({Action::backward_input, rank, at});
    if (at >= late) row.push_back({Action::backward_weight, rank, weights++});
    if (forwards < microbatches) row.push_back({Action::forward, rank, forwards++});
  }
  while (weights < microbatches) row.push_back({Action::backward_weight, rank, weights++});
  return row;
}

}  // namespace

// ZB-H1: with the memory of 1f1b, a third of its wait where F, I and W take the same time.
ScheduleTable zb1p(const Sizes& sizes) {
  ScheduleTable table;
  for (int rank = 0; rank < sizes.ranks; ++rank)
    table.push_back(row_of(rank, sizes.microbatches, sizes.ranks - rank, rank));
  return table;
}

// ZB-H2: with twice the memory no rank waits between its first action and its last.
ScheduleTable zb2p(const Sizes& sizes) {
  ScheduleTable table;
  for (int rank = 0; rank < sizes.ranks; ++rank)
    table.push_back(row_of(rank, sizes.microbatches, 2 * (sizes.ranks - rank) - 1, 2 * rank));
  return table;
}

}  // namespace heddle::pipeline
