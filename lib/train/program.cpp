// From a schedule to the turns of one rank.
#include "lib/train/program.h"

#include <algorithm>
#include <string>

#include "core/schedule/check.h"
#include "core/schedule/single.h"
#include "heddle/schedule/simulate.h"

namespace heddle::train {
namespace {

// A schedule may refuse numbers of microbatches for its backwards; an evaluation takes any number.
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

bool opens(Action::Kind kind) {
  return kind == Action::forward || kind == Action::send_forward || kind == Action::receive_forward ||
         kind == Action::unshard || kind == Action::reshard;
}

// [rank] -> the turns of its opening: they end before the first backward and, so that no rank waits for a
// send that is not in an opening, before a receive of such a one.
std::vector<size_t> opening_ends(const ScheduleTable& table, const std::vector<int>& rank_of_stage) {
  std::vector<size_t> ends;
  for (const auto& row : table)
    ends.push_back(std::find_if(row.begin(), row.end(), [](const Action& a) { return !opens(a.kind); }) -
                   row.begin());
  const auto is_sent = [&](const Action& receive) {
    const int rank = rank_of_stage[schedule::peer_stage(receive)];
    const auto end = table[rank].begin() + static_cast<std::ptrdiff_t>(ends[rank]);
    return std::find(table[rank].begin(), end, schedule::counterpart(receive)) != end;
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t rank = 0; rank < table.size(); ++rank)
      for (size_t at = 0; at < ends[rank]; ++at)
        if (table[rank][at].kind == Action::receive_forward && !is_sent(table[rank][at])) {
          ends[rank] = at;
          changed = true;
        }
  }
  return ends;
}

Opening opening_of(const std::vector<Turn>& turns, const ScheduleTable& table,
                   const std::vector<int>& rank_of_stage, int rank) {
  const std::vector<size_t> ends = opening_ends(table, rank_of_stage);
  Opening opening{ends[rank], {}};
  for (size_t at = opening.turns; at < turns.size(); ++at) {
    if (turns[at].action.kind != Action::receive_forward) continue;
    const auto& row = table[turns[at].peer];
    const auto end = row.begin() + static_cast<std::ptrdiff_t>(ends[turns[at].peer]);
    if (std::find(row.begin(), end, schedule::counterpart(turns[at].action)) != end)
      opening.left.push_back(turns[at]);
  }
  return opening;
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
  if (pipeline.config.post_validation && purpose == schedule::Purpose::training)
    program.opening = opening_of(program.turns, table, pipeline.rank_of_stage, stages.rank());
  return program;
}

}  // namespace heddle::train
