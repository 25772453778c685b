// Zero bubble with one stage per rank. The backward has two parts: input gradients are sent immediately, and
// weight gradients are deferred as long as memory allows, to fill idle times.
#include <algorithm>

#include "schedules.h"

namespace heddle::pipeline {
namespace {

// Runs `ahead` forwards before the first backward, and defers `late` weight gradients from then on.
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

// ZB-H1: the memory of 1F1B, and a third of its bubble if F, I and W take the same time.
ScheduleTable zb1p(const Sizes& sizes) {
  ScheduleTable table;
  for (int rank = 0; rank < sizes.ranks; ++rank)
    table.push_back(row_of(rank, sizes.microbatches, sizes.ranks - rank, rank));
  return table;
}

// ZB-H2: with twice the memory of 1F1B, no rank is idle between its first and last action.
ScheduleTable zb2p(const Sizes& sizes) {
  ScheduleTable table;
  for (int rank = 0; rank < sizes.ranks; ++rank)
    table.push_back(row_of(rank, sizes.microbatches, 2 * (sizes.ranks - rank) - 1, 2 * rank));
  return table;
}

}  // namespace heddle::pipeline
