// Builder of a row of a V schedule, which tracks the next microbatch of each kind of action on both stages.
#pragma once

#include <array>
#include <deque>
#include <string>
#include <vector>

#include "heddle/base/error.h"
#include "schedules.h"

namespace heddle::pipeline {

// Throws Error{config} unless every rank holds two stages.
inline void refuse_other_than_two(const Sizes& sizes, const std::string& name) {
  if (sizes.each() == 2) return;
  throw Error(ErrorCode::config, "schedule " + name,
              name + " requires exactly 2 stages per rank, but got " + std::to_string(sizes.each()) + ".",
              "change layers_per_stage so that every rank holds two stages");
}

class VRow {
 public:
  enum Side { going, coming };  // stages `rank` and 2 * ranks - 1 - rank

  VRow(const Sizes& sizes, int rank) : stage_{rank, sizes.stages - 1 - rank} {}

  void forward(Side side) { row_.push_back({Action::forward, stage_[side], forwards_[side]++}); }
  // Adds a whole backward, or only its input gradients. Then the weight gradients wait in a queue.
  void backward(Side side) { row_.push_back({Action::backward, stage_[side], backwards_[side]++}); }
  void input(Side side) {
    row_.push_back({Action::backward_input, stage_[side], backwards_[side]++});
    waiting_.push_back({Action::backward_weight, row_.back().stage, row_.back().microbatch});
  }
  // Adds deferred weight gradients: the oldest, or the oldest of one stage. Adds nothing if none are
  // deferred.
  void weight() {
    if (waiting_.empty()) return;
    row_.push_back(waiting_.front());
    waiting_.pop_front();
  }
  void weight(Side side) {
    for (auto at = waiting_.begin(); at != waiting_.end(); ++at)
      if (at->stage == stage_[side]) {
        row_.push_back(*at);
        waiting_.erase(at);
        return;
      }
  }
  bool waits(Side side) const {
    for (const Action& action : waiting_)
      if (action.stage == stage_[side]) return true;
    return false;
  }
  void overlap_last_two() { row_[row_.size() - 2].overlaps_next = true; }

  int forwards(Side side) const { return forwards_[side]; }
  std::vector<Action>& row() { return row_; }

 private:
  std::array<int, 2> stage_, forwards_{}, backwards_{};
  std::deque<Action> waiting_;
  std::vector<Action> row_;
};

}  // namespace heddle::pipeline
