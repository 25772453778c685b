// Event simulation: each rank runs its next action as soon as its inputs are available.
#include "heddle/schedule/simulate.h"

#include <algorithm>
#include <utility>

#include "heddle/base/error.h"

namespace heddle::schedule {
namespace {

constexpr double kNotYet = -1;

class Simulator {
 public:
  Simulator(const ScheduleTable& table, std::span<const int> rank_of_stage, std::span<const Costs> costs)
      : table_(table), rank_of_(rank_of_stage), costs_(costs), at_(table.size(), 0), free_(table.size(), 0) {
    for (const auto& row : table) {
      out_.times.emplace_back(row.size());
      for (const Action& action : row) microbatches_ = std::max(microbatches_, action.microbatch + 1);
    }
    for (auto& ends : ends_) ends.assign(rank_of_.size() * microbatches_, kNotYet);
  }

  Simulation run() {
    for (bool progress = true, left = true; left;) {
      progress = left = false;
      for (size_t rank = 0; rank < table_.size(); ++rank) {
        while (at_[rank] < table_[rank].size() && goes(rank)) progress = true;
        left |= at_[rank] < table_[rank].size();
      }
      if (left && !progress)
        throw Error(ErrorCode::internal, "schedule", "a table that cannot run was simulated",
                    "check it with schedule::check first");
    }
    finish();
    return std::move(out_);
  }

 private:
  // Ends of computations by their results: activations down, gradients up.
  double& end_time(bool forward, int stage, int microbatch) {
    return ends_[forward ? 0 : 1][static_cast<size_t>(stage) * microbatches_ + microbatch];
  }

  // When the result of a neighbouring stage is at this rank; kNotYet: it is not made.
  double arrival(bool forward, int stage, int microbatch, size_t rank) {
    if (stage < 0 || stage >= static_cast<int>(rank_of_.size())) return 0;
    const double made = end_time(forward, stage, microbatch);
    if (made == kNotYet) return kNotYet;
    return rank_of_[stage] == static_cast<int>(rank) ? made
                                                     : made + costs_[forward ? stage : stage - 1].transfer;
  }

  // When the input of a computation is at its rank; kNotYet: it is not made.
  double ready(const Action& action, size_t rank) {
    if (action.kind == Action::backward_weight) return 0;
    const bool forward = action.kind == Action::forward;
    return arrival(forward, action.stage + (forward ? -1 : 1), action.microbatch, rank);
  }

  bool goes(size_t rank) {
    const Action& action = table_[rank][at_[rank]];
    if (computes(action.kind)) return compute(rank);
    if (sends(action.kind) || receives(action.kind))
      transfer(rank);
    else
      out_.times[rank][at_[rank]] = {free_[rank], free_[rank]};
    ++at_[rank];
    return true;
  }

  // An action, or a group of overlapped ones: it starts when all inputs are available, and the results are
  // available at its end.
  bool compute(size_t rank) {
    const auto& row = table_[rank];
    size_t end = at_[rank] + 1;
    while (end < row.size() && row[end - 1].overlaps_next && computes(row[end].kind)) ++end;
    double time = free_[rank];
    for (size_t at = at_[rank]; at < end; ++at) {
      const double there = ready(row[at], rank);
      if (there == kNotYet) return false;
      time = std::max(time, there);
    }
    for (size_t at = at_[rank]; at < end; ++at, time = free_[rank])
      out_.times[rank][at] = {time, free_[rank] = time + cost_of(row[at], costs_[row[at].stage])};
    for (; at_[rank] < end; ++at_[rank]) {
      const Action& action = row[at_[rank]];
      if (action.kind != Action::backward_weight)
        end_time(action.kind == Action::forward, action.stage, action.microbatch) = free_[rank];
    }
    return true;
  }

  double transfer_cost(const Action& action) const {
    return costs_[std::min(action.stage, peer_stage(action))].transfer;
  }

  void transfer(size_t rank) {
    const Action& action = table_[rank][at_[rank]];
    const bool forward = action.kind == Action::send_forward || action.kind == Action::receive_forward;
    const int from = sends(action.kind) ? action.stage : peer_stage(action);
    const double start = end_time(forward, from, action.microbatch);
    // Data may come later: the row goes on, and the computation that needs it waits.
    if (start == kNotYet) late_.push_back({rank, at_[rank]});
    out_.times[rank][at_[rank]] = {start, start + transfer_cost(action)};
  }

  void finish() {
    for (const auto& [rank, step] : late_) {
      const Action& action = table_[rank][step];
      const double start =
          end_time(action.kind == Action::receive_forward, peer_stage(action), action.microbatch);
      out_.times[rank][step] = {start, start + transfer_cost(action)};
    }
    for (const double end : free_) out_.length = std::max(out_.length, end);
    for (size_t rank = 0; rank < table_.size(); ++rank) {
      double busy = 0;
      for (const Action& action : table_[rank]) busy += cost_of(action, costs_[action.stage]);
      out_.idle.push_back(out_.length > 0 ? 1 - busy / out_.length : 0);
    }
    out_.peak = peak_alive(table_);
  }

  const ScheduleTable& table_;
  std::span<const int> rank_of_;
  const std::span<const Costs> costs_;  // [stage]
  int microbatches_ = 1;
  std::vector<size_t> at_;
  std::vector<double> free_;     // [rank]: when it has done its actions so far
  std::vector<double> ends_[2];  // [forward or backward][stage, microbatch]
  std::vector<std::pair<size_t, size_t>> late_;
  Simulation out_;
};

}  // namespace

double cost_of(const Action& action, const Costs& costs) {
  switch (action.kind) {
    case Action::forward:
      return costs.forward;
    case Action::backward:
      return costs.backward;
    case Action::backward_input:
      return costs.backward_input;
    case Action::backward_weight:
      return costs.backward_weight;
    default:
      return 0;
  }
}

Costs stage_share(const Costs& rank, int each) {
  return {rank.forward / each, rank.backward / each, rank.backward_input / each, rank.backward_weight / each,
          rank.transfer};
}

Simulation simulate(const ScheduleTable& table, std::span<const int> rank_of_stage, const Costs& costs) {
  const std::vector<Costs> alike(rank_of_stage.size(), costs);
  return Simulator(table, rank_of_stage, alike).run();
}

Simulation simulate(const ScheduleTable& table, std::span<const int> rank_of_stage,
                    std::span<const Costs> costs) {
  return Simulator(table, rank_of_stage, costs).run();
}

std::vector<int> peak_alive(const ScheduleTable& table) {
  std::vector<int> peaks;
  for (const auto& row : table) {
    int alive = 0, peak = 0;
    const bool trains = std::any_of(row.begin(), row.end(), [](const Action& action) {
      return action.kind == Action::backward || action.kind == Action::backward_weight;
    });
    for (const Action& action : row) {
      if (!trains) alive = 0;  // an evaluation keeps nothing
      if (action.kind == Action::forward) peak = std::max(peak, ++alive);
      if (action.kind == Action::backward || action.kind == Action::backward_weight) --alive;
    }
    peaks.push_back(peak);
  }
  return peaks;
}

}  // namespace heddle::schedule
