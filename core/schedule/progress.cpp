// Compares pairs of transfers in order, then walks all rows until they end or no rank can continue.
#include "core/schedule/progress.h"

#include <algorithm>
#include <map>
#include <utility>

namespace heddle::schedule {
namespace {

bool moves(const Action& action) {
  return sends(action.kind) || receives(action.kind);
}

std::string standing(int rank, int step, const Action& action) {
  return "rank " + std::to_string(rank) + " does " + name_of(action) + " at step " + std::to_string(step);
}

// The steps of one rank's transfers with one other rank, in order: [rank, other] -> steps.
using Talks = std::map<std::pair<int, int>, std::vector<int>>;

Talks talks_of(const ScheduleTable& table, std::span<const int> rank_of_stage) {
  Talks talks;
  for (int rank = 0; rank < static_cast<int>(table.size()); ++rank)
    for (int step = 0; step < static_cast<int>(table[rank].size()); ++step)
      if (const Action& action = table[rank][step]; moves(action))
        talks[{rank, rank_of_stage[peer_stage(action)]}].push_back(step);
  return talks;
}

std::optional<Fault> unpaired(const ScheduleTable& table, std::span<const int> rank_of_stage,
                              const ActionSteps& steps_of) {
  for (int rank = 0; rank < static_cast<int>(table.size()); ++rank)
    for (int step = 0; step < static_cast<int>(table[rank].size()); ++step) {
      const Action& action = table[rank][step];
      if (!moves(action) || steps_of.of(counterpart(action)) >= 0) continue;
      const std::string other = name_of(counterpart(action));
      return Fault{rank, step, name_of(action),
                   std::string(sends(action.kind) ? "nobody receives it: " : "nobody sends it: ") + other +
                       " is missing on rank " + std::to_string(rank_of_stage[peer_stage(action)])};
    }
  return {};
}

// Walks the rows, with the next step of each rank.
class Walk {
 public:
  Walk(const ScheduleTable& table, std::span<const int> rank_of_stage, const ActionSteps& steps_of)
      : table_(table), rank_of_(rank_of_stage), steps_of_(steps_of), at_(table.size(), 0) {}

  std::optional<Fault> run() {
    for (bool progress = true; progress;) {
      progress = false;
      for (int rank = 0; rank < ranks(); ++rank)
        while (!ended(rank) && goes(rank)) progress = true;
    }
    for (int rank = 0; rank < ranks(); ++rank)
      if (!ended(rank)) return ring_from(rank);
    return {};
  }

 private:
  int ranks() const { return static_cast<int>(table_.size()); }
  bool ended(int rank) const { return at_[rank] == table_[rank].size(); }
  const Action& now(int rank) const { return table_[rank][at_[rank]]; }

  // One action of the rank, or one transfer with its peer.
  bool goes(int rank) {
    const Action& action = now(rank);
    if (moves(action)) {
      const int peer = rank_of_[peer_stage(action)];
      if (ended(peer) || !(now(peer) == counterpart(action))) return false;
      ++at_[peer];
    } else if (waits_for_rank(rank) >= 0) {
      return false;
    }
    ++at_[rank];
    return true;
  }

  // In a table without transfers: the rank whose result is missing, or -1.
  int waits_for(const Action& action) const {
    if (steps_of_.any_transfer() || !computes(action.kind) || action.kind == Action::backward_weight)
      return -1;
    const bool forward = action.kind == Action::forward;
    const int stage = action.stage + (forward ? -1 : 1);
    if (stage < 0 || stage >= static_cast<int>(rank_of_.size())) return -1;
    Action made{forward ? Action::forward : Action::backward, stage, action.microbatch};
    if (!forward && steps_of_.of(made) < 0) made.kind = Action::backward_input;
    const int rank = rank_of_[stage];
    return steps_of_.of(made) >= static_cast<int>(at_[rank]) ? rank : -1;
  }

  // Overlapped actions wait for each other's inputs.
  int waits_for_rank(int rank) const {
    if (moves(now(rank))) return rank_of_[peer_stage(now(rank))];
    const auto& row = table_[rank];
    for (size_t at = at_[rank]; at < row.size(); ++at) {
      if (const int other = waits_for(row[at]); other >= 0) return other;
      if (!row[at].overlaps_next) break;
    }
    return -1;
  }

  // Ranks that wait for each other form a cycle; the message begins at its lowest rank.
  Fault ring_from(int rank) const {
    std::vector<bool> seen(table_.size(), false);
    for (; !seen[rank]; rank = waits_for_rank(rank)) seen[rank] = true;
    int lowest = rank;
    for (int next = waits_for_rank(rank); next != rank; next = waits_for_rank(next))
      lowest = std::min(lowest, next);
    std::string text;
    int next = lowest;
    do {
      const int peer = waits_for_rank(next);
      text += (text.empty() ? "deadlock: rank " : ", rank ") + std::to_string(next) + " at " +
              name_of(now(next)) + " (step " + std::to_string(at_[next]) + ") waits for rank " +
              std::to_string(peer);
      next = peer;
    } while (next != lowest);
    return {lowest, static_cast<int>(at_[lowest]), name_of(now(lowest)), text};
  }

  const ScheduleTable& table_;
  std::span<const int> rank_of_;
  const ActionSteps& steps_of_;
  std::vector<size_t> at_;
};

}  // namespace

std::optional<Fault> find_transfer_fault(const ScheduleTable& table, std::span<const int> rank_of_stage,
                                         const ActionSteps& steps_of) {
  if (auto fault = unpaired(table, rank_of_stage, steps_of)) return fault;
  const Talks talks = talks_of(table, rank_of_stage);
  for (const auto& [pair, steps] : talks) {
    const auto [rank, other] = pair;
    if (rank > other) continue;
    const std::vector<int>& theirs = talks.at({other, rank});
    for (size_t i = 0; i < steps.size(); ++i) {
      const Action& ours = table[rank][steps[i]];
      const Action& their = table[other][theirs[i]];
      if (their == counterpart(ours)) continue;
      return Fault{rank, steps[i], name_of(ours),
                   "crossed transfers between two ranks: " + standing(rank, steps[i], ours) + " while " +
                       standing(other, theirs[i], their) + "; both ranks must see one order"};
    }
  }
  return {};
}

std::optional<Fault> find_deadlock(const ScheduleTable& table, std::span<const int> rank_of_stage,
                                   const ActionSteps& steps_of) {
  return Walk(table, rank_of_stage, steps_of).run();
}

}  // namespace heddle::schedule
