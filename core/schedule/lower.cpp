// Lowering in three passes over each rank's row: gathering, reduction, then transfers in one global order.
#include "heddle/schedule/simulate.h"

#include <algorithm>
#include <functional>
#include <queue>
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

// One stage for the forward, one for the backward, one prefetched.
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

// The order in which ranks are walked: in turns, one action each, as PyTorch does; or by simulated time with
// the default costs.
enum class Clock { turns, time };

// Walks all ranks, an action (or a group of overlapped ones) at a time, in the order of their ends.
class Transfers {
 public:
  Transfers(const ScheduleTable& rows, std::span<const int> rank_of_stage, Clock clock)
      : rows_(rows),
        rank_of_(rank_of_stage),
        clock_(clock),
        at_(rows.size(), 0),
        free_(rows.size(), 0),
        out_(rows.size()) {
    for (const Row& row : rows)
      for (const Action& action : row) microbatches_ = std::max(microbatches_, action.microbatch + 1);
    for (auto& made : made_) made.assign(rank_of_.size() * microbatches_, kNotYet);
  }

  ScheduleTable run() {
    for (int rank = 0; rank < static_cast<int>(rows_.size()); ++rank) look(rank);
    while (!next_.empty()) {
      const auto [end, rank] = next_.top();
      next_.pop();
      perform(rank, end);
    }
    for (size_t rank = 0; rank < rows_.size(); ++rank)
      if (at_[rank] < rows_[rank].size()) refuse();
    return std::move(out_);
  }

 private:
  enum Direction { down, up };  // activations, gradients
  static constexpr double kNotYet = -1;

  int last() const { return static_cast<int>(rank_of_.size()) - 1; }
  static bool gives_gradient(Action::Kind kind) {
    return kind == Action::backward || kind == Action::backward_input;
  }
  size_t place(int stage, int microbatch) const {
    return static_cast<size_t>(stage) * microbatches_ + microbatch;
  }
  size_t group_end(int rank) const {
    const Row& row = rows_[rank];
    size_t end = at_[rank] + 1;
    while (end < row.size() && row[end - 1].overlaps_next) ++end;
    return end;
  }

  // When the input of an action is available; kNotYet: nothing has produced it yet.
  double ready(const Action& action) const {
    if (action.kind == Action::forward && action.stage > 0)
      return made_[down][place(action.stage, action.microbatch)];
    if (gives_gradient(action.kind) && action.stage < last())
      return made_[up][place(action.stage, action.microbatch)];
    return 0;
  }

  // Puts the rank's next group into the queue, by its end, when all of its inputs are known.
  void look(int rank) {
    if (at_[rank] == rows_[rank].size()) return;
    double start = free_[rank], length = 0;
    for (size_t at = at_[rank]; at < group_end(rank); ++at) {
      const double there = ready(rows_[rank][at]);
      if (there == kNotYet) return;
      start = std::max(start, there);
      length += cost_of(rows_[rank][at], Costs());
    }
    next_.push({start + (clock_ == Clock::turns ? 1 : length), rank});
  }

  void perform(int rank, double end) {
    const Row& row = rows_[rank];
    const size_t from = at_[rank];
    at_[rank] = group_end(rank);
    free_[rank] = end;
    out_[rank].insert(out_[rank].end(), row.begin() + from, row.begin() + at_[rank]);
    for (size_t at = from; at < at_[rank]; ++at) pass_on(rank, row[at], end);
    look(rank);
  }

  // Sends the action's result to the neighbouring stage: adds the transfer to both rows now, or to none if
  // one rank holds both stages.
  void pass_on(int rank, const Action& action, double end) {
    const bool forward = action.kind == Action::forward;
    if (!forward && !gives_gradient(action.kind)) return;
    const int to = forward ? action.stage + 1 : action.stage - 1;
    if (to < 0 || to > last()) return;
    const int peer = rank_of_[to];
    const bool waits = peer != rank && at_[peer] < rows_[peer].size() && waits_for(peer, forward, to, action);
    // Lower ranks have their turn first: their results are available in the same turn.
    const bool same_turn = clock_ == Clock::turns && rank < peer;
    made_[forward ? down : up][place(to, action.microbatch)] = same_turn ? end - 1 : end;
    if (peer == rank) return;
    const Action send{forward ? Action::send_forward : Action::send_backward, action.stage,
                      action.microbatch};
    out_[rank].push_back(send);
    out_[peer].push_back(counterpart(send));
    if (waits) look(peer);
  }

  // Whether the rank's next group needs this result.
  bool waits_for(int rank, bool forward, int stage, const Action& made) const {
    const Row& row = rows_[rank];
    return std::any_of(row.begin() + at_[rank], row.begin() + group_end(rank), [&](const Action& action) {
      const bool takes = forward ? action.kind == Action::forward : gives_gradient(action.kind);
      return takes && action.stage == stage && action.microbatch == made.microbatch;
    });
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
  const Clock clock_;
  std::vector<size_t> at_;
  std::vector<double> free_;  // [rank]
  ScheduleTable out_;
  int microbatches_ = 1;
  std::vector<double> made_[2];        // [direction][stage, microbatch]: when its input is there
  using End = std::pair<double, int>;  // of a rank's next group
  std::priority_queue<End, std::vector<End>, std::greater<>> next_;
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

// Whether a rank posts a receive only after the other side has begun to send.
bool starts_late(const ScheduleTable& table, std::span<const int> rank_of_stage) {
  const Simulation run = simulate(table, rank_of_stage);
  for (size_t rank = 0; rank < table.size(); ++rank) {
    double free = 0;
    for (size_t at = 0; at < table[rank].size(); ++at) {
      const Action::Kind kind = table[rank][at].kind;
      if (computes(kind)) free = run.times[rank][at].end;
      if (receives(kind) && free > run.times[rank][at].start) return true;
    }
  }
  return false;
}

}  // namespace

ScheduleTable lower(const ScheduleTable& compute, std::span<const int> rank_of_stage) {
  refuse_unknown_stages(compute, rank_of_stage);
  ScheduleTable rows;
  for (const Row& row : compute) rows.push_back(with_reductions(with_gathering(row)));
  ScheduleTable table = Transfers(rows, rank_of_stage, Clock::turns).run();
  if (!starts_late(table, rank_of_stage)) return table;
  return Transfers(rows, rank_of_stage, Clock::time).run();
}

ScheduleTable forward_wave(std::span<const int> rank_of_stage, int ranks, int microbatches) {
  ScheduleTable table(ranks);
  const int stages = static_cast<int>(rank_of_stage.size());
  for (int time = 0; time < stages + microbatches - 1; ++time)
    for (int stage = std::max(0, time - microbatches + 1); stage <= std::min(time, stages - 1); ++stage)
      table[rank_of_stage[stage]].push_back({Action::forward, stage, time - stage});
  return table;
}

}  // namespace heddle::schedule
