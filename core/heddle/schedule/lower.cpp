// Lowering in three passes over each rank's row: gathering, reduction, then transfers in one global order.
#include "heddle/schedule/lower.h"

#include <algorithm>
#include <utility>

#include "heddle/base/error.h"

namespace heddle::schedule {
namespace {

using Row = std::vector<Action>;

// The stages that a row uses from `at` on, in order of first use, up to `count`.
std::vector<int> next_stages(const Row& row, size_t at, size_t count) {
  std::vector<int> stages;
  for (; at < row.size() && stages.size() < count; ++at)
    if (std::find(stages.begin(), stages.end(), row[at].stage) == stages.end())
      stages.push_back(row[at].stage);
  return stages;
}

// One stage runs forward, one backward, one is fetched ahead.
constexpr size_t kActiveStages = 3;

Row with_gathering(const Row& row) {
  Row out;
  std::vector<int> active;
  const auto holds = [](const std::vector<int>& stages, int stage) {
    return std::find(stages.begin(), stages.end(), stage) != stages.end();
  };
  for (size_t at = 0; at < row.size(); ++at) {
    const bool joined = at > 0 && row[at - 1].overlaps_next;
    const std::vector<int> next = joined ? active : next_stages(row, at, kActiveStages);
    std::erase_if(active, [&](int stage) {
      if (holds(next, stage)) return false;
      out.push_back({Action::reshard, stage, 0});
      return true;
    });
    for (int stage : next)
      if (!holds(active, stage)) {
        active.insert(std::lower_bound(active.begin(), active.end(), stage), stage);
        out.push_back({Action::unshard, stage, 0});
      }
    out.push_back(row[at]);
  }
  for (int stage : active) out.push_back({Action::reshard, stage, 0});
  return out;
}

bool makes_weight_gradients(Action::Kind kind) {
  return kind == Action::backward || kind == Action::backward_weight;
}

Row with_reductions(const Row& row) {
  Row out;
  std::vector<int> waiting;  // stages whose reduction follows the overlapped actions
  for (size_t at = 0; at < row.size(); ++at) {
    out.push_back(row[at]);
    const bool last = makes_weight_gradients(row[at].kind) &&
                      std::none_of(row.begin() + at + 1, row.end(), [&](const Action& later) {
                        return makes_weight_gradients(later.kind) && later.stage == row[at].stage;
                      });
    if (last) waiting.push_back(row[at].stage);
    if (row[at].overlaps_next) continue;
    for (int stage : waiting) out.push_back({Action::reduce_gradients, stage, 0});
    waiting.clear();
  }
  return out;
}

// Walks the ranks in turns, one action (or one group of overlapped ones) of each; what is not ready waits.
class Transfers {
 public:
  Transfers(const ScheduleTable& rows, std::span<const int> rank_of_stage)
      : rows_(rows), rank_of_(rank_of_stage), at_(rows.size(), 0), out_(rows.size()) {
    for (const Row& row : rows)
      for (const Action& action : row) microbatches_ = std::max(microbatches_, action.microbatch + 1);
    for (auto& ready : ready_) ready.assign(rank_of_.size() * microbatches_, false);
  }

  ScheduleTable run() {
    for (bool progress = true, left = true; left;) {
      progress = left = false;
      for (int rank = 0; rank < static_cast<int>(rows_.size()); ++rank) {
        progress |= turn(rank);
        left |= at_[rank] < rows_[rank].size();
      }
      if (left && !progress) refuse();
    }
    return std::move(out_);
  }

 private:
  enum Direction { down, up };  // activations, gradients

  int last() const { return static_cast<int>(rank_of_.size()) - 1; }
  static bool gives_gradient(Action::Kind kind) {
    return kind == Action::backward || kind == Action::backward_input;
  }
  size_t place(int stage, int microbatch) const {
    return static_cast<size_t>(stage) * microbatches_ + microbatch;
  }

  bool is_ready(const Action& action) const {
    if (action.kind == Action::forward && action.stage > 0)
      return ready_[down][place(action.stage, action.microbatch)];
    if (gives_gradient(action.kind) && action.stage < last())
      return ready_[up][place(action.stage, action.microbatch)];
    return true;
  }

  bool turn(int rank) {
    const Row& row = rows_[rank];
    if (at_[rank] == row.size()) return false;
    size_t end = at_[rank] + 1;
    while (end < row.size() && row[end - 1].overlaps_next) ++end;
    for (size_t at = at_[rank]; at < end; ++at)
      if (!is_ready(row[at])) return false;
    out_[rank].insert(out_[rank].end(), row.begin() + at_[rank], row.begin() + end);
    for (; at_[rank] < end; ++at_[rank]) pass_on(rank, row[at_[rank]]);
    return true;
  }

  // What the action made goes to the neighbouring stage: through both rows at this moment, or not at all when
  // one rank holds both.
  void pass_on(int rank, const Action& action) {
    const bool forward = action.kind == Action::forward;
    if (!forward && !gives_gradient(action.kind)) return;
    const int to = forward ? action.stage + 1 : action.stage - 1;
    if (to < 0 || to > last()) return;
    ready_[forward ? down : up][place(to, action.microbatch)] = true;
    if (rank_of_[to] == rank) return;
    const Action send{forward ? Action::send_forward : Action::send_backward, action.stage,
                      action.microbatch};
    out_[rank].push_back(send);
    out_[rank_of_[to]].push_back(counterpart(send));
  }

  [[noreturn]] void refuse() const {
    std::string stuck;
    for (size_t rank = 0; rank < rows_.size(); ++rank)
      if (at_[rank] < rows_[rank].size())
        stuck += (stuck.empty() ? "rank " : ", rank ") + std::to_string(rank) + " at " +
                 name_of(rows_[rank][at_[rank]]);
    throw Error(ErrorCode::input, "schedule", "deadlock: every rank waits for another: " + stuck,
                "order each rank's actions so that what one waits for comes earlier on its neighbour");
  }

  const ScheduleTable& rows_;
  std::span<const int> rank_of_;
  std::vector<size_t> at_;
  ScheduleTable out_;
  int microbatches_ = 1;
  std::vector<bool> ready_[2];  // [direction][stage, microbatch]: its input is there
};

void refuse_unknown_stages(const ScheduleTable& compute, std::span<const int> rank_of_stage) {
  for (size_t rank = 0; rank < compute.size(); ++rank)
    for (size_t step = 0; step < compute[rank].size(); ++step) {
      const Action& action = compute[rank][step];
      const bool known = action.stage >= 0 && action.stage < static_cast<int>(rank_of_stage.size()) &&
                         action.microbatch >= 0 && rank_of_stage[action.stage] == static_cast<int>(rank) &&
                         computes(action.kind);
      if (!known)
        throw Error(ErrorCode::input, "schedule",
                    "rank " + std::to_string(rank) + ", step " + std::to_string(step) + ": " +
                        name_of(action) + ": only F, B, I and W of the rank's own stages are lowered");
    }
}

}  // namespace

ScheduleTable lower(const ScheduleTable& compute, std::span<const int> rank_of_stage) {
  refuse_unknown_stages(compute, rank_of_stage);
  ScheduleTable rows;
  for (const Row& row : compute) rows.push_back(with_reductions(with_gathering(row)));
  return Transfers(rows, rank_of_stage).run();
}

ScheduleTable forward_only(const ScheduleTable& compute) {
  ScheduleTable table;
  for (const Row& row : compute) {
    Row& forwards = table.emplace_back();
    for (const Action& action : row)
      if (action.kind == Action::forward) forwards.push_back({action.kind, action.stage, action.microbatch});
  }
  return table;
}

}  // namespace heddle::schedule
