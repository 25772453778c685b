// DualPipeV: stages in a V, where the forward of a microbatch on one stage of a rank overlaps the backward of
// another microbatch on its other stage. The order is that of PyTorch's ScheduleDualPipeV.
#include "v_row.h"

namespace heddle::pipeline {
namespace {

using enum VRow::Side;

void forward_beside_backward(VRow& row, VRow::Side forward, VRow::Side backward) {
  row.forward(forward);
  row.backward(backward);
  row.overlap_last_two();
}

void fill_pair(VRow& row, int rank, int after) {
  for (int i = 0; i < 2 * after; ++i) row.forward(going);
  for (int i = 0; i <= rank; ++i) {
    row.forward(going);
    row.forward(coming);
  }
  for (int i = 0; i < after; ++i) {
    row.input(coming);
    row.weight();
    row.forward(coming);
  }
}

// The remaining `turns` forwards belong to one stage.
void steady_pair(VRow& row, int turns, int after) {
  for (int i = 0; i < turns; ++i) {
    if (i == 0 && after == 0) {  // not paired on the last rank, whose warmup is shorter
      row.forward(going);
      row.backward(coming);
    } else {
      forward_beside_backward(row, going, coming);
    }
    forward_beside_backward(row, coming, going);
  }
}

void drain_pair(VRow& row, int rank, int after) {
  for (int i = 0; i < after; ++i) {
    row.backward(coming);
    forward_beside_backward(row, coming, going);
  }
  // From the middle of these actions on, weight gradients are deferred to idle times of the rank.
  const int middle = 2 * ((rank + 1) / 2) + (rank % 2 == 0 ? 1 : 0);
  const auto backward = [&](VRow::Side side, int at) { at >= middle ? row.input(side) : row.backward(side); };
  for (int at = 0; at < 2 * (rank + 1); ++at) backward(at % 2 == 0 ? coming : going, at);
  for (int i = 0; i < after; ++i) {
    row.weight();
    row.input(going);
  }
  for (int i = 0; i <= rank; ++i) row.weight();
}

}  // namespace

ScheduleTable dual_pipe_v(const Sizes& sizes) {
  refuse_other_than_two(sizes, "DualPipeV");
  if (sizes.microbatches < sizes.stages)
    throw Error(ErrorCode::config, "schedule DualPipeV",
                "DualPipeV requires at least as many microbatches as stages, but got " +
                    std::to_string(sizes.microbatches) + " microbatches and " + std::to_string(sizes.stages) +
                    " stages.",
                "use smaller microbatches or fewer ranks, or set pp_schedule: zbvzerobubble");
  ScheduleTable table;
  for (int rank = 0; rank < sizes.ranks; ++rank) {
    const int after = sizes.ranks - 1 - rank;
    VRow row(sizes, rank);
    fill_pair(row, rank, after);
    steady_pair(row, sizes.microbatches - sizes.stages + rank + 1, after);
    drain_pair(row, rank, after);
    table.push_back(std::move(row.row()));
  }
  return table;
}

}  // namespace heddle::pipeline
