// Schedules for tests: one stage per rank, several in a loop, two in a V, split backward.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "core/schedule/check.h"
#include "heddle/schedule/schedule.h"
#include "heddle/schedule/simulate.h"

namespace heddle::tests {

struct Planned {
  std::string name;
  std::vector<int> rank_of_stage;
  int microbatches;
  ScheduleTable table;
};

inline Planned fill_and_drain(int ranks, int microbatches) {
  Planned out{"fill and drain", schedule::loop_placement(ranks, ranks), microbatches, ScheduleTable(ranks)};
  for (int rank = 0; rank < ranks; ++rank)
    for (const auto kind : {Action::forward, Action::backward})
      for (int microbatch = 0; microbatch < microbatches; ++microbatch)
        out.table[rank].push_back({kind, rank, microbatch});
  return out;
}

// Runs each backward as soon as possible, whole or in two parts. Weight gradients follow immediately, or at
// the end.
enum class Backward { whole, split, weights_last };

inline Planned early_backward(int ranks, int microbatches, Backward how) {
  Planned out{"early backward " + std::to_string(static_cast<int>(how)),
              schedule::loop_placement(ranks, ranks), microbatches, ScheduleTable(ranks)};
  for (int rank = 0; rank < ranks; ++rank) {
    auto& row = out.table[rank];
    const auto add = [&](Action::Kind kind, int microbatch) { row.push_back({kind, rank, microbatch}); };
    const int ahead = std::min(microbatches, ranks - rank);
    for (int i = 0; i < ahead; ++i) add(Action::forward, i);
    for (int i = 0; i < microbatches; ++i) {
      add(how == Backward::whole ? Action::backward : Action::backward_input, i);
      if (how == Backward::split) add(Action::backward_weight, i);
      if (i + ahead < microbatches) add(Action::forward, i + ahead);
    }
    if (how == Backward::weights_last)
      for (int i = 0; i < microbatches; ++i) add(Action::backward_weight, i);
  }
  return out;
}

// All forwards of a stage before the next stage's, and backwards in reverse: any placement.
inline Planned by_stages(const std::string& name, std::vector<int> rank_of_stage, int ranks,
                         int microbatches) {
  Planned out{name, std::move(rank_of_stage), microbatches, ScheduleTable(ranks)};
  const int stages = static_cast<int>(out.rank_of_stage.size());
  for (int stage = 0; stage < stages; ++stage)
    for (int i = 0; i < microbatches; ++i)
      out.table[out.rank_of_stage[stage]].push_back({Action::forward, stage, i});
  for (int stage = stages - 1; stage >= 0; --stage)
    for (int i = microbatches - 1; i >= 0; --i)
      out.table[out.rank_of_stage[stage]].push_back({Action::backward, stage, i});
  return out;
}

// Returns schedules of each kind for these sizes.
inline std::vector<Planned> every_kind(int ranks, int microbatches) {
  std::vector<Planned> all = {fill_and_drain(ranks, microbatches)};
  for (const auto how : {Backward::whole, Backward::split, Backward::weights_last})
    all.push_back(early_backward(ranks, microbatches, how));
  for (const int each : {2, 3})
    all.push_back(by_stages("loop of " + std::to_string(each), schedule::loop_placement(ranks, ranks * each),
                            ranks, microbatches));
  all.push_back(by_stages("v", schedule::v_placement(ranks, 2 * ranks), ranks, microbatches));
  return all;
}

// Returns "rank 1, step 2: 1F0: text", or "" for a valid table.
inline std::string table_error(const ScheduleTable& table, const std::vector<int>& rank_of_stage,
                               int microbatches, schedule::Purpose purpose = schedule::Purpose::training) {
  const auto fault = schedule::find_fault(table, rank_of_stage, microbatches, purpose);
  if (!fault) return "";
  return "rank " + std::to_string(fault->rank) + ", step " + std::to_string(fault->step) + ": " +
         fault->action + ": " + fault->text;
}

// Counts receives that a rank posts after the data is produced, because it still computes.
inline int late_receives(const ScheduleTable& table, const std::vector<int>& rank_of_stage) {
  const schedule::Simulation run = schedule::simulate(table, rank_of_stage);
  int late = 0;
  for (size_t rank = 0; rank < table.size(); ++rank) {
    double free = 0;
    for (size_t at = 0; at < table[rank].size(); ++at) {
      if (schedule::computes(table[rank][at].kind)) free = run.times[rank][at].end;
      if (schedule::receives(table[rank][at].kind) && free > run.times[rank][at].start) ++late;
    }
  }
  return late;
}

// Returns every row as words: "0F0 0B0".
inline std::vector<std::string> rows_of(const ScheduleTable& table) {
  std::vector<std::string> rows;
  for (const auto& row : table) {
    std::string& text = rows.emplace_back();
    for (const Action& action : row) text += (text.empty() ? "" : " ") + schedule::name_of(action);
  }
  return rows;
}

}  // namespace heddle::tests
