// ZB-V: two stages per rank in a V, with weight gradients in the idle times of warmup and cooldown. The order
// is that of PyTorch's ScheduleZBVZeroBubble.
#include <algorithm>

#include "v_row.h"

namespace heddle::pipeline {
namespace {

void whole_backward(VRow& row, VRow::Side side) {
  row.input(side);
  row.weight(side);
}

void fill_v(VRow& row, int ranks, int rank) {
  for (int i = 0; i < 2 * (ranks - rank) - 1; ++i) row.forward(VRow::going);
  for (int i = 0; i < rank; ++i) {
    row.forward(VRow::coming);
    row.forward(VRow::going);
  }
  for (int i = 0; i < ranks - rank; ++i) {
    row.forward(VRow::coming);
    whole_backward(row, VRow::coming);
  }
}

void drain_v(VRow& row, int ranks, int rank) {
  for (int i = 0; i < rank; ++i) {
    row.input(VRow::going);
    row.input(VRow::coming);
  }
  for (int i = 0; i < ranks - rank; ++i) {
    row.input(VRow::going);
    row.weight(VRow::going);
  }
  for (const auto side : {VRow::coming, VRow::going})
    while (row.waits(side)) row.weight(side);
}

}  // namespace

ScheduleTable zbv_zero_bubble(const Sizes& sizes) {
  refuse_other_than_two(sizes, "ZBV");
  // Uses the order for enough microbatches to fill the pipeline, and skips microbatches that do not exist.
  const int full = std::max(2 * sizes.ranks - 1, sizes.microbatches);
  ScheduleTable table;
  for (int rank = 0; rank < sizes.ranks; ++rank) {
    VRow row(sizes, rank);
    fill_v(row, sizes.ranks, rank);
    while (row.forwards(VRow::coming) < full) {
      if (row.forwards(VRow::going) < full) row.forward(VRow::going);
      whole_backward(row, VRow::going);
      row.forward(VRow::coming);
      whole_backward(row, VRow::coming);
    }
    drain_v(row, sizes.ranks, rank);
    std::erase_if(row.row(), [&](const Action& action) { return action.microbatch >= sizes.microbatches; });
    table.push_back(std::move(row.row()));
  }
  return table;
}

}  // namespace heddle::pipeline
