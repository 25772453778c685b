// From a schedule to the turns of one rank.
#include "lib/train/program.h"

#include <algorithm>
#include <string>

#include "core/schedule/check.h"
#include "core/schedule/single.h"
#include "heddle/schedule/simulate.h"

namespace heddle::train {
namespace {

// A schedule may refuse some numbers of microbatches because of its backward; an evaluation may have any
// number.
ScheduleTable table_of(const Pipeline& pipeline, int ranks, int microbatches, schedule::Purpose purpose) {
  const std::string& where = pipeline.config.where;
  const bool trains = purpose == schedule::Purpose::training;
  ScheduleTable table;
  if (!trains)
    table = schedule::forward_wave(pipeline.rank_of_stage, ranks, microbatches);
  else if (pipeline.schedule != nullptr)
    table = pipeline.schedule->plan(ranks, pipeline.stages(), microbatches);
  else
    table = schedule::make_single()->plan(1, 1, microbatches);
  const auto for_whom = trains ? schedule::Purpose::training : schedule::Purpose::evaluation;
  schedule::check(table, pipeline.rank_of_stage, microbatches, where, for_whom);
  table = schedule::lower(table, pipeline.rank_of_stage);
  schedule::check(table, pipeline.rank_of_stage, microbatches, where, for_whom);
  return table;
}

bool completes_gradients(Action::Kind kind) {
  return kind == Action::backward || kind == Action::backward_weight;
}

// Transfers of one tag between two ranks are in the order of the calls.
int tag_of(const Action& action, int stages) {
  const bool from_below = action.kind == Action::send_forward || action.kind == Action::receive_backward;
  const int edge = from_below ? action.stage : action.stage - 1;  // between this stage and the next one
  const bool up = action.kind == Action::send_forward || action.kind == Action::receive_forward;
  return stages * (1 + 2 * action.microbatch + (up ? 0 : 1)) + edge;
}

void mark_last(std::vector<Turn>& turns) {
  std::vector<bool> gradients, computes;
  for (auto turn = turns.rbegin(); turn != turns.rend(); ++turn) {
    const auto stage = static_cast<size_t>(turn->local);
    if (stage >= gradients.size()) gradients.resize(stage + 1), computes.resize(stage + 1);
    if (completes_gradients(turn->action.kind)) turn->last = !gradients[stage];
    if (turn->action.kind == Action::reshard) turn->last = !computes[stage];
    gradients[stage] = gradients[stage] || completes_gradients(turn->action.kind);
    computes[stage] = computes[stage] || schedule::computes(turn->action.kind);
  }
}

}  // namespace

void check_schedule(const Pipeline& pipeline, int ranks, int microbatches) {
  for (const schedule::Purpose purpose : {schedule::Purpose::training, schedule::Purpose::evaluation})
    table_of(pipeline, ranks, microbatches, purpose);
}

Program make_program(const Stages& stages, int ranks, int microbatches, schedule::Purpose purpose) {
  const Pipeline& pipeline = stages.pipeline();
  const std::vector<int>& mine = stages.indices();
  Program program;
  program.microbatches = microbatches;
  const ScheduleTable table = table_of(pipeline, ranks, microbatches, purpose);
  for (const Action& action : table[stages.rank()]) {
    Turn turn{action};
    turn.local = static_cast<int>(std::find(mine.begin(), mine.end(), action.stage) - mine.begin());
    if (schedule::sends(action.kind) || schedule::receives(action.kind)) {
      turn.peer = pipeline.rank_of_stage[schedule::peer_stage(action)];
      turn.tag = tag_of(action, pipeline.stages());
    }
    program.splits = program.splits || action.kind == Action::backward_weight;
    program.turns.push_back(turn);
  }
  mark_last(program.turns);
  return program;
}

}  // namespace heddle::train
