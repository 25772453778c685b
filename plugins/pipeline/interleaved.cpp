// Interleaved schedules: microbatches go in rounds through all stages of a rank, alternating forwards and
// backwards. Weight gradients are part of the backward, or deferred to idle times. The orders are those of
// PyTorch's ScheduleInterleaved1F1B and ScheduleInterleavedZeroBubble.
#include <algorithm>
#include <string>

#include "heddle/base/error.h"
#include "schedules.h"

namespace heddle::pipeline {
namespace {

// Returns the microbatches per round: the number of ranks, or more if it does not divide the microbatches.
int round_of(const Sizes& sizes, const std::string& name) {
  const int rounds = std::max(1, sizes.microbatches / sizes.ranks);
  if (sizes.microbatches % rounds == 0) return sizes.microbatches / rounds;
  throw Error(ErrorCode::config, "schedule " + name,
              name + " requires the number of microbatches to be a multiple of the number of rounds (" +
                  std::to_string(rounds) + "), but got " + std::to_string(sizes.microbatches) + ".",
              "the number of rounds is the number of microbatches divided by the number of ranks (" +
                  std::to_string(sizes.ranks) + "), rounded down; use a multiple of the number of ranks");
}

// Actions of one rank in the order of rounds: the k-th forward, and the k-th backward.
struct Rounds {
  const Sizes& sizes;
  int rank, round;

  int microbatch(int k) const { return k / (round * sizes.each()) * round + k % round; }
  Action forward(int k) const {
    return {Action::forward, k / round % sizes.each() * sizes.ranks + rank, microbatch(k)};
  }
  Action backward(Action::Kind kind, int k) const {
    const int local = sizes.each() - 1 - k / round % sizes.each();
    return {kind, local * sizes.ranks + rank, microbatch(k)};
  }
  // Number of forwards before the first backward: `step` more for each rank after this one.
  int ahead(int step) const {
    const int all = sizes.microbatches * sizes.each();
    return std::min(all, (sizes.each() - 1) * round + step * (sizes.ranks - 1 - rank));
  }
};

}  // namespace

ScheduleTable interleaved_1f1b(const Sizes& sizes) {
  const int round = round_of(sizes, "Interleaved 1F1B");
  const int all = sizes.microbatches * sizes.each();
  ScheduleTable table(sizes.ranks);
  for (int rank = 0; rank < sizes.ranks; ++rank) {
    const Rounds work{sizes, rank, round};
    const int ahead = work.ahead(2);
    for (int k = 0; k < ahead; ++k) table[rank].push_back(work.forward(k));
    for (int k = 0; k < all; ++k) {
      if (k + ahead < all) table[rank].push_back(work.forward(k + ahead));
      table[rank].push_back(work.backward(Action::backward, k));
    }
  }
  return table;
}

ScheduleTable interleaved_zero_bubble(const Sizes& sizes) {
  const int round = round_of(sizes, "Zero bubble");
  const int all = sizes.microbatches * sizes.each();
  ScheduleTable table(sizes.ranks);
  for (int rank = 0; rank < sizes.ranks; ++rank) {
    const Rounds work{sizes, rank, round};
    const int ahead = work.ahead(1),
              late = std::min(rank, all);  // weight gradients are deferred by `late` input gradients
    for (int k = 0; k < ahead; ++k) table[rank].push_back(work.forward(k));
    for (int k = 0; k < all; ++k) {
      if (k + ahead < all) table[rank].push_back(work.forward(k + ahead));
      table[rank].push_back(work.backward(Action::backward_input, k));
      if (k >= late) table[rank].push_back(work.backward(Action::backward_weight, k - late));
    }
    for (int k = all - late; k < all; ++k) table[rank].push_back(work.backward(Action::backward_weight, k));
  }
  return table;
}

}  // namespace heddle::pipeline
