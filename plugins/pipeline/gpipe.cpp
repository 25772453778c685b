// Fill and drain: forwards in order, then backwards in the same order, as PyTorch's ScheduleGPipe runs them.
#include "gpipe.h"

namespace heddle::pipeline {

ScheduleTable GPipe::plan(int ranks, int /*stages*/, int microbatches) const {
  ScheduleTable table(ranks);
  for (int rank = 0; rank < ranks; ++rank)
    for (const auto kind : {Action::forward, Action::backward})
      for (int microbatch = 0; microbatch < microbatches; ++microbatch)
        table[rank].push_back({kind, rank, microbatch});
  return table;
}

}  // namespace heddle::pipeline
