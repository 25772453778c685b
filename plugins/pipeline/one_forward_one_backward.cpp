// 1F1B in the order of PyTorch's Schedule1F1B: warmup, alternating backwards and forwards, cooldown.
#include <algorithm>

#include "schedules.h"

namespace heddle::pipeline {

ScheduleTable one_forward_one_backward(const Sizes& sizes) {
  ScheduleTable table(sizes.ranks);
  for (int rank = 0; rank < sizes.ranks; ++rank) {
    const int ahead =
        std::min(sizes.microbatches, sizes.ranks - rank);  // later stages have fewer microbatches in flight
    for (int forward = 0; forward < ahead; ++forward) table[rank].push_back({Action::forward, rank, forward});
    for (int backward = 0; backward < sizes.microbatches; ++backward) {
      table[rank].push_back({Action::backward, rank, backward});
      if (backward + ahead < sizes.microbatches)
        table[rank].push_back({Action::forward, rank, backward + ahead});
    }
  }
  return table;
}

}  // namespace heddle::pipeline
