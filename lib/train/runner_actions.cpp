// The actions of a call: one after another, overlapped, recorded.
#include <thread>

#include "core/mesh/overlap.h"
#include "heddle/model/autocast.h"
#include "lib/train/runner.h"

namespace heddle::train {

void Runner::go(size_t from, size_t to) {
  const std::vector<Turn>& turns = program_->turns;
  for (size_t at = from; at < to; ++at) {
    if (at + 1 == to || !overlap(turns[at], turns[at + 1])) {
      perform(turns[at]);
      continue;
    }
    model::Autocast* const autocast = model::Autocast::active();
    overlap_->run(
        [&] { perform(turns[at]); },
        [&] {
          const model::Autocast::Scope same(autocast == model::Autocast::active() ? nullptr : autocast);
          perform(turns[at + 1]);
        });
    ++at;
  }
}

// A forward and a backward of different stages. Two forwards would draw random numbers in turns, two
// backwards share autograd's thread of a device, and actions on one stage its gathered parameters.
bool Runner::overlap(const Turn& one, const Turn& next) const {
  const auto backward = [](const Turn& turn) {
    return turn.action.kind == Action::backward || turn.action.kind == Action::backward_input;
  };
  const auto forward = [](const Turn& turn) { return turn.action.kind == Action::forward; };
  return overlap_ != nullptr && one.action.overlaps_next && one.local != next.local &&
         ((forward(one) && backward(next)) || (backward(one) && forward(next)));
}

void Runner::perform(const Turn& turn) {
  recording_ == nullptr ? act(turn, nullptr) : perform_recorded(turn);
}

void Runner::act(const Turn& turn, RanAction* ran) {
  if (turn.action.microbatch > 0) agree();
  switch (turn.action.kind) {
    case Action::forward:
      return forward(turn, ran);
    case Action::backward:
    case Action::backward_input:
      agree();
      return backward(turn, ran);
    case Action::backward_weight:
      return backward_weight(turn);
    case Action::send_forward:
    case Action::send_backward:
      return send(turn);
    case Action::receive_forward:
    case Action::receive_backward:
      return receive(turn);
    case Action::unshard:
    case Action::reshard:
    case Action::reduce_gradients:
      return guide(turn);
  }
}

// Actions are in the order in which they begin, also if the second of an overlapped pair ends first.
void Runner::perform_recorded(const Turn& turn) {
  std::vector<RanAction>& actions = recording_->actions;
  const size_t place = actions.size();
  RanAction& first = actions.emplace_back();
  first.action = turn.action;
  first.call = call_;
  first.thread = std::this_thread::get_id();
  first.begin = first.ready = RanAction::Clock::now();
  RanAction ran = first;  // the vector grows
  act(turn, &ran);
  ran.end = RanAction::Clock::now();
  ran.overlapped = overlap_ != nullptr && overlap_->is_running();
  if (ran.overlapped) ran.away = overlap_->away() - ran.away;
  actions[place] = ran;
}

// Before an overlapped action waits for what another rank sends to it, the other one runs.
void Runner::await_inputs() {
  if (overlap_ != nullptr) overlap_->hand_over();
}

void Runner::note_ready(RanAction* ran) const {
  if (ran == nullptr) return;
  ran->ready = RanAction::Clock::now();
  if (overlap_ != nullptr && overlap_->is_running()) ran->away = overlap_->away();
}

// Whole parameters stay for the next call, although the schedule would free them at its end.
void Runner::guide(const Turn& turn) {
  ParallelStage& stage = *locals_[turn.local].stage;
  if (turn.action.kind == Action::unshard) return stage.unshard();
  if (turn.action.kind == Action::reshard && (!turn.last || last_call_)) return stage.reshard();
  if (turn.action.kind == Action::reduce_gradients && last_call_) return stage.reduce_gradients();
}

}  // namespace heddle::train
