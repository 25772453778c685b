// The step of each action in its rank's row, for the passes of the checker.
#pragma once

#include <vector>

#include "heddle/schedule/schedule.h"

namespace heddle::schedule {

struct StageState {
  bool gathered = false, ever_gathered = false, gathered_now = false;
  int reduced_at = -1;
};

// Each action of a microbatch is in one row at most, so a step is enough.
class ActionSteps {
 public:
  ActionSteps(int stages, int microbatches)
      : microbatches_(microbatches),
        states_(stages),
        step_(static_cast<size_t>(kKinds) * stages * microbatches, -1) {}

  void note(const Action& action, int step) {
    step_[index(action)] = step;
    if (sends(action.kind) || receives(action.kind)) any_transfer_ = true;
  }
  void note_reduction() { any_reduction_ = true; }
  // The step of an action, or -1.
  int of(const Action& action) const { return step_[index(action)]; }
  bool any_transfer() const { return any_transfer_; }
  bool any_reduction() const { return any_reduction_; }
  StageState& stage(int stage) { return states_[stage]; }

 private:
  static constexpr int kKinds = Action::unshard;
  size_t index(const Action& action) const {
    const size_t row = static_cast<size_t>(action.kind) * states_.size() + action.stage;
    return row * microbatches_ + action.microbatch;
  }

  int microbatches_;
  bool any_transfer_ = false, any_reduction_ = false;
  std::vector<StageState> states_;
  std::vector<int> step_;
};

}  // namespace heddle::schedule
