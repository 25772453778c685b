// The order of PyTorch's Schedule1F1B: fill, then backward and forward in turns, then drain.
#include "one_forward_one_backward.h"

#include <algorithm>

namespace heddle::pipeline {

ScheduleTable OneForwardOneBackward::plan(int ranks, int /*stages*/, int microbatches) const {
  ScheduleTable table(ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    const int ahead = std::min(microbatches, ranks - rank);  // the deeper the stage, the fewer in flight
    for (int forward = 0; forward < ahead; ++forward) table[rank].push_back({Action::forward, rank, forward});
    for (int backward = 0; backward < microbatches; ++backward) {
      table[rank].push_back({Action::backward, rank, backward});
      if (backward + ahead < microbatches) table[rank].push_back({Action::forward, rank, backward + ahead});
    }
  }
  return table;
}

}  // namespace heddle::pipeline
