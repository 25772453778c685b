// One call of a schedule as one rank runs it: its row of the lowered table, with all look-ups resolved.
#pragma once

#include <vector>

#include "core/schedule/check.h"
#include "heddle/parallel/stages.h"

namespace heddle::train {

// One action: its stage among this rank's, and the peer of a transfer.
struct Turn {
  Action action;
  int local = 0;      // the stage's index among this rank's
  int peer = -1;      // of a transfer: the peer's position on pp
  int tag = 0;        // of a transfer: unique for stage, microbatch and direction
  bool last = false;  // B and W: the stage's last of both; reshard: the stage computes no more in this call
};

struct Program {
  int microbatches = 0;
  bool splits = false;  // it has I and W
  std::vector<Turn> turns;
};

// Plans, lowers and checks a schedule for training and for evaluation. Throws as make_program does.
void check_schedule(const Pipeline& pipeline, int ranks, int microbatches);

// Plans, lowers and checks. Throws Error{input} naming rank, step and action of a table that cannot run, and
// what the schedule itself throws. An evaluation is planned by the placement alone and may have any number.
Program make_program(const Stages& stages, int ranks, int microbatches, schedule::Purpose purpose);

}  // namespace heddle::train
