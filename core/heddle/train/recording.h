// What a rank did in a step and when: for traces and for finding out where time goes.
#pragma once

#include <chrono>
#include <vector>

#include "heddle/schedule/schedule.h"

namespace heddle {

// One action as it ran. Times are of the steady clock, which all processes of a machine share.
struct RanAction {
  using Time = std::chrono::steady_clock::time_point;
  Action action;
  int call = 0;            // the schedule's call in the step
  Time begin, ready, end;  // ready: what it waited for had come; its work began
};

// A part of a step that is no action: "reduce", "norm", "update".
struct RanPhase {
  const char* name;  // a literal
  RanAction::Time begin, end;
};

struct Recording {
  std::vector<RanAction> actions;
  std::vector<RanPhase> phases;
};

}  // namespace heddle
