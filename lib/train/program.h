// One call of a schedule as one rank runs it: its row of the lowered table, with all look-ups resolved.
#pragma once

#include <vector>

#include "core/schedule/check.h"
#include "heddle/base/export.h"
#include "heddle/parallel/stages.h"

namespace heddle::train {

// One action: which of this rank's stages it is for, and whom it talks to.
struct Turn {
  Action action;
  int local = 0;      // the stage's index among this rank's
  int peer = -1;      // of a transfer: the peer's position on pp
  int tag = 0;        // of a transfer: unique for stage, microbatch and direction
  bool last = false;  // B and W: the stage's last of both; reshard: the stage computes no more in this call
};

// The forwards of a call before its first backward, which can be run again: where a rank stops to find out
// whether they count. What one rank receives in its opening, another one sends in its own.
struct Opening {
  size_t turns = 0;
  std::vector<Turn> left;  // receives of later turns whose data other ranks send in their openings
};

struct Program {
  int microbatches = 0;
  bool splits = false;  // it has I and W
  std::vector<Turn> turns;
  Opening opening;  // of this rank
};

// Plans, lowers and checks a schedule for training and for evaluation. Throws as make_program does.
HEDDLE_API void check_schedule(const Pipeline& pipeline, int ranks, int microbatches);

// Plans, lowers and checks. Throws Error{input} naming rank, step and action of a table that cannot run, and
// what the schedule itself throws. An evaluation is planned by the placement alone and takes any number.
HEDDLE_API Program make_program(const Stages& stages, int ranks, int microbatches, schedule::Purpose purpose);

}  // namespace heddle::train
