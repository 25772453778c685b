// The checker's passes: each action alone, what is missing, the order in a row, then transfers and deadlock.
#include "core/schedule/check.h"

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "heddle/schedule/schedule.h"

namespace heddle::schedule {
namespace {

struct StageState {
  bool gathered = false, ever_gathered = false, gathered_now = false;
  int reduced_at = -1;
};

// Each action of a microbatch is in one row at most, so a step is enough.
class ActionSteps {
 public:
  ActionSteps(int stages, int microbatches)
      : microbatches_(microbatches),
        states_(stages),
        step_(static_cast<size_t>(kKinds) * stages * microbatches, -1) {}

  void note(const Action& action, int step) {
    step_[index(action)] = step;
    if (sends(action.kind) || receives(action.kind)) any_transfer_ = true;
  }
  void note_reduction() { any_reduction_ = true; }
  // The step of an action, or -1.
  int of(const Action& action) const { return step_[index(action)]; }
  bool any_transfer() const { return any_transfer_; }
  bool any_reduction() const { return any_reduction_; }
  StageState& stage(int stage) { return states_[stage]; }

 private:
  static constexpr int kKinds = Action::unshard;
  size_t index(const Action& action) const {
    const size_t row = static_cast<size_t>(action.kind) * states_.size() + action.stage;
    return row * microbatches_ + action.microbatch;
  }

  int microbatches_;
  bool any_transfer_ = false, any_reduction_ = false;
  std::vector<StageState> states_;
  std::vector<int> step_;
};

bool moves(const Action& action) {
  return sends(action.kind) || receives(action.kind);
}

std::string standing(int rank, int step, const Action& action) {
  return "rank " + std::to_string(rank) + " does " + name_of(action) + " at step " + std::to_string(step);
}

// The steps of one rank's transfers with one other rank, in order: [rank, other] -> steps.
using TransferSteps = std::map<std::pair<int, int>, std::vector<int>>;

TransferSteps transfer_steps(const ScheduleTable& table, std::span<const int> rank_of_stage) {
  TransferSteps transfers;
  for (int rank = 0; rank < static_cast<int>(table.size()); ++rank)
    for (int step = 0; step < static_cast<int>(table[rank].size()); ++step)
      if (const Action& action = table[rank][step]; moves(action))
        transfers[{rank, rank_of_stage[peer_stage(action)]}].push_back(step);
  return transfers;
}

std::optional<Fault> unpaired(const ScheduleTable& table, std::span<const int> rank_of_stage,
                              const ActionSteps& steps_of) {
  for (int rank = 0; rank < static_cast<int>(table.size()); ++rank)
    for (int step = 0; step < static_cast<int>(table[rank].size()); ++step) {
      const Action& action = table[rank][step];
      if (!moves(action) || steps_of.of(counterpart(action)) >= 0) continue;
      const std::string other = name_of(counterpart(action));
      return Fault{rank, step, name_of(action),
                   std::string(sends(action.kind) ? "no rank receives it: " : "no rank sends it: ") + other +
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

// A send without its receive, a receive without its send, or two ranks that see their transfers in different
// orders. `steps_of`: the steps of the table's actions.
std::optional<Fault> find_transfer_fault(const ScheduleTable& table, std::span<const int> rank_of_stage,
                                         const ActionSteps& steps_of) {
  if (auto fault = unpaired(table, rank_of_stage, steps_of)) return fault;
  const TransferSteps transfers = transfer_steps(table, rank_of_stage);
  for (const auto& [pair, steps] : transfers) {
    const auto [rank, other] = pair;
    if (rank > other) continue;
    const std::vector<int>& theirs = transfers.at({other, rank});
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

// Runs the table, of compute actions or with transfers that block on both sides; finds ranks that wait in a
// cycle.
std::optional<Fault> find_deadlock(const ScheduleTable& table, std::span<const int> rank_of_stage,
                                   const ActionSteps& steps_of) {
  return Walk(table, rank_of_stage, steps_of).run();
}

std::string at_step(int step) {
  return "at step " + std::to_string(step);
}

class Checker {
 public:
  Checker(const ScheduleTable& table, std::span<const int> rank_of_stage, int microbatches, Purpose purpose)
      : table_(table),
        rank_of_(rank_of_stage),
        stages_(static_cast<int>(rank_of_stage.size())),
        microbatches_(microbatches),
        purpose_(purpose),
        steps_of_(stages_, microbatches) {}

  std::optional<Fault> run() {
    walk([this](const Action& action) { return alone(action); });
    if (!fault_) walk([this](const Action& action) { return order(action); });
    if (!fault_) missing();
    if (!fault_ && steps_of_.any_transfer()) fault_ = find_transfer_fault(table_, rank_of_, steps_of_);
    if (!fault_) fault_ = find_deadlock(table_, rank_of_, steps_of_);
    return fault_;
  }

 private:
  // Calls `look` on each action until it returns a fault.
  template <class Look>
  void walk(Look look) {
    for (rank_ = 0; rank_ < static_cast<int>(table_.size()); ++rank_)
      for (step_ = 0; step_ < static_cast<int>(table_[rank_].size()); ++step_) {
        const std::string text = look(table_[rank_][step_]);
        if (text.empty()) continue;
        fault_ = {rank_, step_, name_of(table_[rank_][step_]), text};
        return;
      }
  }

  // The faults of an action by itself; records its step.
  std::string alone(const Action& action) {
    if (action.stage < 0 || action.stage >= stages_)
      return "there is no such stage; the stages are 0 to " + std::to_string(stages_ - 1);
    if (rank_of_[action.stage] != rank_)
      return "stage " + std::to_string(action.stage) + " is not on this rank, it is on rank " +
             std::to_string(rank_of_[action.stage]);
    if (action.kind >= Action::unshard) return of_stage(action);
    if (action.microbatch < 0 || action.microbatch >= microbatches_)
      return "there is no such microbatch; they are 0 to " + std::to_string(microbatches_ - 1);
    const bool goes_back = action.kind != Action::forward && action.kind != Action::send_forward &&
                           action.kind != Action::receive_forward;
    if (purpose_ == Purpose::evaluation && goes_back) return "an evaluation runs forwards alone";
    if (sends(action.kind) || receives(action.kind))
      if (std::string text = peer(action); !text.empty()) return text;
    return repeated(action);
  }

  std::string peer(const Action& action) const {
    const int other = peer_stage(action);
    if (other < 0 || other >= stages_)
      return "stage " + std::to_string(action.stage) + " has no neighbour there to " +
             (sends(action.kind) ? "send to" : "receive from");
    if (rank_of_[other] == rank_)
      return "the stages " + std::to_string(action.stage) + " and " + std::to_string(other) +
             " are both on this rank, so that nothing is sent";
    return "";
  }

  std::string repeated(const Action& action) {
    const auto clash = [&](Action::Kind kind) {
      return steps_of_.of({kind, action.stage, action.microbatch});
    };
    if (const int before = clash(action.kind); before >= 0)
      return "it is repeated: it is " + at_step(before) + " already";
    const bool splits = action.kind == Action::backward_input || action.kind == Action::backward_weight;
    if (splits && clash(Action::backward) >= 0)
      return "it is repeated: the whole backward is " + at_step(clash(Action::backward)) + " already";
    if (action.kind == Action::backward)
      for (const auto part : {Action::backward_input, Action::backward_weight})
        if (clash(part) >= 0)
          return "it is repeated: " + name_of({part, action.stage, action.microbatch}) + " is " +
                 at_step(clash(part)) + " already";
    steps_of_.note(action, step_);
    return "";
  }

  // UNSHARD and RESHARD take turns; REDUCE_GRAD comes once.
  std::string of_stage(const Action& action) {
    StageState& state = steps_of_.stage(action.stage);
    if (action.kind == Action::unshard) {
      if (state.gathered) return "it is repeated: the stage is gathered already";
      state.gathered = state.ever_gathered = true;
      return "";
    }
    if (action.kind == Action::reshard) {
      if (!state.gathered) return "the stage is not gathered here: " + stage_action(action, Action::unshard);
      state.gathered = false;
      return "";
    }
    if (purpose_ == Purpose::evaluation) return "an evaluation runs forwards alone";
    if (state.reduced_at >= 0) return "it is repeated: it is " + at_step(state.reduced_at) + " already";
    state.reduced_at = step_;
    steps_of_.note_reduction();
    return "";
  }

  static std::string stage_action(const Action& of, Action::Kind kind) {
    return name_of({kind, of.stage, 0}) + " is missing before it";
  }

  std::string before(const Action& action, Action::Kind kind, const std::string& what, int stage_step = 0) {
    const Action needed{kind, action.stage + stage_step, action.microbatch};
    const int place = steps_of_.of(needed);
    if (place < 0) return what + " " + name_of(needed) + " is missing";
    if (place > step_) return what + " " + name_of(needed) + " comes later, " + at_step(place);
    return "";
  }

  // Checks that each action comes after those of its row that it needs.
  std::string order(const Action& action) {
    if (computes(action.kind))
      if (std::string text = gathered(action); !text.empty()) return text;
    switch (action.kind) {
      case Action::forward:
        return action.stage == 0 ? "" : input(action, Action::receive_forward, Action::forward, -1);
      case Action::backward:
      case Action::backward_input:
        if (std::string text = before(action, Action::forward, "its forward"); !text.empty()) return text;
        if (action.stage == stages_ - 1) return "";
        return input(action, Action::receive_backward, Action::backward, +1);
      case Action::backward_weight:
        return before(action, Action::backward_input, "the gradient of the input");
      case Action::send_forward:
        return before(action, Action::forward, "what it sends is made by");
      case Action::send_backward:
        return before(action, gradient_kind(action.stage, action.microbatch), "what it sends is made by");
      default:
        return unshard_turns(action);
    }
  }

  Action::Kind gradient_kind(int stage, int microbatch) const {
    const bool split = steps_of_.of({Action::backward_input, stage, microbatch}) >= 0;
    return split ? Action::backward_input : Action::backward;
  }

  // An input comes from a receive, or from the neighbouring stage on this rank.
  std::string input(const Action& action, Action::Kind receive, Action::Kind made, int neighbour) {
    const int stage = action.stage + neighbour;
    if (rank_of_[stage] != rank_)
      return steps_of_.any_transfer() ? before(action, receive, "its input by") : "";
    const Action::Kind kind = made == Action::forward ? made : gradient_kind(stage, action.microbatch);
    return before(action, kind, "its input is made by", neighbour);
  }

  // The second walk tracks the gathering again, for the computations between.
  std::string gathered(const Action& action) {
    const StageState& state = steps_of_.stage(action.stage);
    if (!state.ever_gathered || state.gathered_now) return "";
    return "the stage is not gathered here: " + stage_action(action, Action::unshard);
  }
  std::string unshard_turns(const Action& action) {
    StageState& state = steps_of_.stage(action.stage);
    if (action.kind == Action::unshard) state.gathered_now = true;
    if (action.kind == Action::reshard) state.gathered_now = false;
    if (action.kind != Action::reduce_gradients) return "";
    for (int microbatch = 0; microbatch < microbatches_; ++microbatch)
      for (const auto kind : {Action::backward, Action::backward_weight})
        if (steps_of_.of({kind, action.stage, microbatch}) > step_)
          return name_of({kind, action.stage, microbatch}) + " comes later, " +
                 at_step(steps_of_.of({kind, action.stage, microbatch}));
    return "";
  }

  void miss(int stage, Action::Kind kind, int microbatch) {
    const int rank = rank_of_[stage];
    fault_ = {rank, static_cast<int>(table_[rank].size()), name_of({kind, stage, microbatch}),
              "it is missing: the row ends without it"};
  }

  void missing() {
    for (int stage = 0; stage < stages_ && !fault_; ++stage) {
      for (int microbatch = 0; microbatch < microbatches_ && !fault_; ++microbatch)
        missing_of(stage, microbatch);
      if (fault_) return;
      const StageState& state = steps_of_.stage(stage);
      if (state.gathered) miss(stage, Action::reshard, 0);
      if (steps_of_.any_reduction() && state.reduced_at < 0) miss(stage, Action::reduce_gradients, 0);
    }
  }

  void missing_of(int stage, int microbatch) {
    const auto there = [&](Action::Kind kind) { return steps_of_.of({kind, stage, microbatch}) >= 0; };
    if (!there(Action::forward)) return miss(stage, Action::forward, microbatch);
    if (purpose_ == Purpose::evaluation || there(Action::backward)) return;
    if (!there(Action::backward_input)) return miss(stage, Action::backward, microbatch);
    if (!there(Action::backward_weight)) miss(stage, Action::backward_weight, microbatch);
  }

  const ScheduleTable& table_;
  std::span<const int> rank_of_;
  const int stages_, microbatches_;
  const Purpose purpose_;
  ActionSteps steps_of_;
  int rank_ = 0, step_ = 0;
  std::optional<Fault> fault_;
};

}  // namespace

std::optional<Fault> find_fault(const ScheduleTable& table, std::span<const int> rank_of_stage,
                                int microbatches, Purpose purpose) {
  const int ranks = static_cast<int>(table.size());
  for (size_t stage = 0; stage < rank_of_stage.size(); ++stage)
    if (rank_of_stage[stage] < 0 || rank_of_stage[stage] >= ranks)
      return Fault{rank_of_stage[stage], 0, name_of({Action::forward, static_cast<int>(stage), 0}),
                   "the table has no row for this rank; it has " + std::to_string(ranks)};
  return Checker(table, rank_of_stage, microbatches, purpose).run();
}

std::string faulty_rows(const ScheduleTable& table, const Fault& fault) {
  constexpr size_t kMostRows = 32, kMostCells = 512;
  size_t cells = 0;
  for (const auto& row : table) cells += row.size();
  if (table.size() > kMostRows || cells > kMostCells) return "";
  std::string text;
  for (size_t rank = 0; rank < table.size(); ++rank) {
    const bool here = static_cast<int>(rank) == fault.rank;
    text += (rank == 0 ? "rank " : "\nrank ") + std::to_string(rank) + ":";
    for (size_t step = 0; step < table[rank].size(); ++step) {
      const std::string name = name_of(table[rank][step]);
      text += here && static_cast<int>(step) == fault.step ? " [" + name + "]" : " " + name;
    }
    if (here && fault.step >= static_cast<int>(table[rank].size())) text += " [" + fault.action + "?]";
  }
  return text;
}

void check(const ScheduleTable& table, std::span<const int> rank_of_stage, int microbatches,
           const std::string& where, Purpose purpose, ErrorCode code) {
  const auto fault = find_fault(table, rank_of_stage, microbatches, purpose);
  if (!fault) return;
  const std::string rows = code == ErrorCode::plugin_failed ? faulty_rows(table, *fault) : "";
  throw Error(code, where,
              "rank " + std::to_string(fault->rank) + ", step " + std::to_string(fault->step) + ": " +
                  fault->action + ": " + fault->text,
              rows.empty() ? "" : "the table that was planned:\n" + rows);
}

}  // namespace heddle::schedule
