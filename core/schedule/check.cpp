// The checker's passes: each action alone, what is missing, the order in a row, then transfers and deadlock.
#include "core/schedule/check.h"

#include "core/schedule/action_steps.h"
#include "core/schedule/progress.h"

namespace heddle::schedule {
namespace {

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
