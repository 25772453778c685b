// GPipe: all forwards in order, then all backwards in the same order, as in PyTorch's ScheduleGPipe.
#include "schedules.h"

namespace heddle::pipeline {

ScheduleTable gpipe(const Sizes& sizes) {
  ScheduleTable table(sizes.ranks);
  for (int rank = 0; rank < sizes.ranks; ++rank)
    for (const auto kind : {Action::forward, Action::backward})
      for (int microbatch = 0; microbatch < sizes.microbatches; ++microbatch)
        table[rank].push_back({kind, rank, microbatch});
  return table;
}

}  // namespace heddle::pipeline
