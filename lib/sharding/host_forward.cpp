// Order, missing units, nesting, repeated use and recomputation of units whose forward a host drives.
#include "host_forward.h"

#include <ATen/SequenceNumber.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <string>
#include <utility>

#include "heddle/base/error.h"
#include "reducer.h"

namespace heddle::sharding {

size_t ShardedStage::HostForward::agree(size_t unit) const {
  if (ranks == nullptr) return unit;
  const at::Tensor left = at::zeros({1}, at::kFloat);
  *left.mutable_data_ptr<float>() = static_cast<float>(units - unit);
  ranks->all_reduce(left, Reduce::max)->wait();
  return units - static_cast<size_t>(*left.const_data_ptr<float>());
}

void ShardedStage::HostForward::agree(std::vector<char>& flags) const {
  if (ranks == nullptr) return;
  const at::Tensor any = at::zeros({static_cast<int64_t>(flags.size())}, at::kFloat);
  std::copy(flags.begin(), flags.end(), any.mutable_data_ptr<float>());
  ranks->all_reduce(any, Reduce::max)->wait();
  std::copy_n(any.const_data_ptr<float>(), flags.size(), flags.begin());
}

Tensors ShardedStage::HostForward::computed(size_t unit, const Tensors& outputs) const {
  Tensors out;
  const auto add = [&](const at::Tensor& tensor) {
    if (tensor.grad_fn() && tensor.grad_fn()->sequence_nr() >= began[unit]) out.push_back(tensor);
  };
  for (const at::Tensor& output : outputs) {
    add(output);
    if (output.is_view()) add(at::Tensor(output._base()));
  }
  return out;
}

std::vector<size_t> ShardedStage::HostForward::order(std::vector<size_t>& places) const {
  std::vector<std::pair<size_t, size_t>> turns;  // unit, index in the sequence
  for (const size_t unit : sequence) turns.emplace_back(unit, turns.size());
  const auto last_of = [&](size_t unit) {
    return std::find_if(turns.rbegin(), turns.rend(), [&](const auto& turn) { return turn.first == unit; });
  };
  for (size_t unit = 0; unit < units; ++unit)
    if (last_of(unit) == turns.rend())
      turns.insert(unit == 0 ? turns.begin() : last_of(unit - 1).base(), {unit, sequence.size()});
  std::vector<size_t> out;
  places.assign(sequence.size(), 0);
  for (const auto& [unit, index] : turns) {
    if (index < sequence.size()) places[index] = out.size();
    out.push_back(unit);
  }
  return out;
}

void ShardedStage::begin_forward(const Batch& batch) {
  if (!host_) host_ = std::make_unique<HostForward>(model_.turns.size(), groups_.all);
  HostForward& host = *host_;
  if (host.running)
    throw Error(ErrorCode::input, model_.strategy, "a forward begins before the last one has ended",
                "call end_forward() after each forward, and abandon_forward() where the model threw");
  open_forward(batch);
  host.running = true;
  host.training = at::GradMode::is_enabled();
  host.next = 0;
  host.ran.assign(model_.turns.size(), 0);
  host.reached.assign(model_.turns.size(), 0);
  if (!host.known) {
    host.sequence.clear();
    host.around.assign(host.units, 0);
  }
  if (!host.training) return;
  ++host.pending;
  walk_.new_forward();
}

ShardedStage::HostForward& ShardedStage::host_forward(size_t unit) const {
  if (!host_ || unit >= host_->units)
    throw Error(
        ErrorCode::input, model_.strategy,
        host_ ? "there is no unit " + std::to_string(unit) + ": the stage has " + std::to_string(host_->units)
              : "a unit runs outside of a forward",
        host_ ? "number the units as parallelize() got them" : "call begin_forward() first");
  return *host_;
}

std::string ShardedStage::quoted(size_t unit) const {
  return "'" + std::string(model_.units[unit]->name()) + "'";
}

// A backward runs units again (activation checkpointing), mostly after the forward and rarely within one.
bool ShardedStage::recomputes() const {
  return !host_->running || (walk_.running() && torch::autograd::get_current_graph_task_id() >= 0);
}

void ShardedStage::before(size_t unit) {
  HostForward& host = host_forward(unit);
  host.began[unit] = at::sequence_number::peek();
  if (recomputes()) return recompute(unit);
  if (held_) return;  // ranks may run any number of forwards
  for (const HostForward::Open& one : host.open)
    if (one.unit == unit)
      throw Error(ErrorCode::input, model_.strategy, "the unit " + quoted(unit) + " runs inside itself",
                  "make units of the modules that it runs");
  if (!host.known) return learn(unit);
  const size_t turn = next_turn(unit);
  while (host.next < turn) make_up(host.next++);
  host.next = turn + 1;
  host.ran[turn] = 1;
  enter_turn(turn);
  open_turn(unit, turn);
}

size_t ShardedStage::next_turn(size_t unit) const {
  size_t turn = host_->next;
  while (turn < model_.turns.size() && model_.turns[turn].index != unit) ++turn;
  if (turn < model_.turns.size()) return turn;
  const std::string last = host_->next == 0 ? "" : quoted(model_.turns[host_->next - 1].index);
  throw Error(ErrorCode::input, model_.strategy,
              "the unit " + quoted(unit) + " runs after " + last +
                  ", but in the first forward its last use was before it",
              "run units in the order of the first forward, as often at most; make one unit of modules whose "
              "order changes");
}

// Every rank gathers the unit that all agreed on; who does not run it frees it. Parameters of several units
// stay to the end of this forward, so that all ranks gather them once.
void ShardedStage::learn(size_t unit) {
  HostForward& host = *host_;
  for (size_t next = host.agree(unit); next < host.units; next = host.agree(unit)) {
    const Turn& turn = model_.turns[next];
    host.sequence.push_back(next);
    start(turn);
    finish(turn);
    if (next == unit) return open_turn(unit, host.sequence.size() - 1);
    free_unshared(turn);
  }
}

void ShardedStage::free_unshared(const Turn& turn) {
  for (const Model::Use& use : turn.uses)
    if (use.bucket->users_ == 1) free(*use.bucket);
}

const Model::Turn& ShardedStage::find_turn(const size_t unit, const size_t turn) const {
  return model_.turns[host_->known ? turn : unit];
}

void ShardedStage::open_turn(size_t unit, size_t turn) {
  HostForward& host = *host_;
  if (!host.open.empty() && !host.around[host.open.back().unit]) surround(host.open.back().unit);
  host.open.push_back({unit, turn});
  for (const Model::Use& use : find_turn(unit, turn).uses) ++use.bucket->open_;
}

void ShardedStage::surround(size_t unit) {
  host_->around[unit] = 1;
  if (!host_->known) return;
  for (size_t i = 0; i < model_.turns.size(); ++i) {
    Turn& turn = model_.turns[i];
    if (turn.index != unit) continue;
    turn.around = true;
    for (const Model::Use& use : turn.uses) {
      use.bucket->around_ = true;
      share_gradients(*use.bucket);
    }
    walk_.expect(i, false);
  }
}

// Defers the reduction of a bucket's gradients to the end of the backward, because they may arrive in parts.
void ShardedStage::share_gradients(const Bucket& bucket) {
  const auto found = std::find(trained_.begin(), trained_.end(), bucket.gradients());
  if (found != trained_.end()) walk_.share(static_cast<size_t>(found - trained_.begin()));
}

void ShardedStage::close_turn() {
  const HostForward::Open one = host_->open.back();
  host_->open.pop_back();
  const Turn& turn = find_turn(one.unit, one.turn);
  for (const Model::Use& use : turn.uses) --use.bucket->open_;
  if (host_->known)
    leave_turn(one.turn);
  else
    free_unshared(turn);
}

void ShardedStage::enter_turn(size_t turn) {
  start(model_.turns[turn]);
  finish(model_.turns[turn]);
  host_->reached[turn] = gather_ahead(turn);
}

void ShardedStage::leave_turn(size_t turn) {
  release_after_forward(turn, host_->reached[turn], host_->training && walk_.has_backward(turn));
}

void ShardedStage::make_up(size_t turn) {
  enter_turn(turn);
  leave_turn(turn);
}

void ShardedStage::after(size_t unit, const Tensors& outputs) {
  HostForward& host = host_forward(unit);
  if (recomputes()) return watch_recomputed(unit, outputs);
  if (held_) return;
  if (std::none_of(host.open.begin(), host.open.end(), [&](const auto& one) { return one.unit == unit; }))
    throw Error(ErrorCode::input, model_.strategy, "the unit " + quoted(unit) + " ends and did not begin",
                "call before() of each unit first");
  while (host.open.back().unit != unit) close_turn();  // they threw, and the host caught it
  if (at::GradMode::is_enabled()) {
    if (host.around[unit]) {
      walk_.hook_start(outputs);
    } else if (const size_t turn = host.open.back().turn;
               walk_.hook(turn, host.computed(unit, outputs), queue_)) {
      host.backward[unit] = 1;
      if (host.known) walk_.expect(turn, true);
    }
  }
  close_turn();
}

void ShardedStage::end_forward() {
  HostForward& host = host_forward(0);
  if (!host.running) return;
  if (!held_) {
    while (!host.open.empty()) close_turn();
    if (!host.known)
      learn(host.units);
    else
      while (host.next < model_.turns.size()) make_up(host.next++);
    if (!host.known || (host.training && !host.backwards_known)) settle_order();
    if (!host.training)
      for (const auto& bucket : model_.buckets)
        if (bucket->around_ && !bucket->stays_) free(*bucket);
  }
  host.running = false;
}

// Agrees with the other ranks on the units that ran on some of them only, and on what is gathered.
void ShardedStage::settle_order() {
  HostForward& host = *host_;
  std::vector<char> flags = host.around;
  flags.insert(flags.end(), host.backward.begin(), host.backward.end());
  host.agree(flags);
  const auto middle = flags.begin() + static_cast<std::ptrdiff_t>(host.units);
  host.around.assign(flags.begin(), middle);
  host.backward.assign(middle, flags.end());
  if (!host.known) arrange_turns();
  host.known = true;
  host.backwards_known = host.training;
  for (size_t unit = 0; unit < host.units; ++unit)
    if (host.around[unit] != 0) surround(unit);
  for (size_t i = 0; i < model_.turns.size(); ++i) {
    const Turn& turn = model_.turns[i];
    const bool trains = std::any_of(turn.uses.begin(), turn.uses.end(),
                                    [](const Model::Use& use) { return use.bucket->gradients() != nullptr; });
    walk_.expect(i, !turn.around && (trains || host.backward[turn.index] != 0));
  }
  free_all();
}

void ShardedStage::arrange_turns() {
  std::vector<size_t> places;
  model_.arrange(host_->order(places), host_->around);
  reducer_ = std::make_unique<Reducer>(model_, policy_);
  passed_ = model_.turns.size();
  walk_.renumber(std::move(places), model_.turns.size());
  for (const auto& bucket : model_.buckets)
    if (bucket->users_ > 1) share_gradients(*bucket);
}

void ShardedStage::abandon_forward() noexcept {
  if (!host_ || !host_->running) return;
  host_->running = false;
  host_->open.clear();
  if (host_->training) --host_->pending;
  try {
    for (const auto& bucket : model_.buckets) {
      bucket->open_ = 0;
      if (!bucket->stays_) free(*bucket);
    }
  } catch (...) {  // the host has an error already
  }
}

// Gathers only: what a backward recomputes is freed when the backward has passed.
void ShardedStage::recompute(size_t unit) {
  if (torch::autograd::get_current_graph_task_id() < 0)
    throw Error(ErrorCode::input, model_.strategy, "the unit " + quoted(unit) + " runs outside of a forward",
                "call begin_forward() first");
  walk_.begin();
  if (host_->deferring && last_turn(unit) > walk_.unreached()) walk_.begin_next_forward();
  const Turn& turn = find_turn(unit, last_turn(unit));
  start(turn);
  finish(turn);
}

// The last turn of the unit that the backward has not passed; else the last one.
size_t ShardedStage::last_turn(size_t unit) const {
  size_t last = 0;
  for (size_t i = model_.turns.size(); i-- > 0;) {
    if (model_.turns[i].index != unit) continue;
    if (i <= walk_.unreached()) return i;
    last = std::max(last, i);
  }
  return last;
}

// A first forward without gradients (reentrant checkpointing) had no outputs to watch. Hooks on a graph that
// only gives saved tensors are never called.
void ShardedStage::watch_recomputed(size_t unit, const Tensors& outputs) {
  if (!at::GradMode::is_enabled() || host_->around[unit]) return;
  const size_t turn = last_turn(unit);
  if (walk_.hook(turn, host_->computed(unit, outputs), queue_)) walk_.expect(turn, true);
}

// Gradients of units around others are opened here, as nothing tells when their own backward begins.
void ShardedStage::began() {
  if (last_ended_)
    throw Error(ErrorCode::input, model_.strategy,
                "a backward follows the one that was announced as the last of the step",
                "call expect_last_backward() before the last backward only, and finish_gradients() after it");
  if (!host_) return;
  host_->deferring = host_->pending > 1;
  host_->passed = 1;
  for (const Turn& turn : model_.turns)
    if (turn.around) start(turn);
  for (const Turn& turn : model_.turns) {
    if (!turn.around) continue;
    finish(turn);
    open_gradients(turn);
  }
}

// Ranks whose forwards have outputs without gradients walk as often as the others.
bool ShardedStage::passed_forward(bool another) {
  if (!host_ || !host_->deferring) return false;
  std::vector<char> any(1, another ? 1 : 0);
  host_->agree(any);
  if (any[0] == 0) return false;
  ++host_->passed;
  passed_ = 0;
  return true;
}

void ShardedStage::reached_again(size_t turn) {
  if (!host_) return;
  const Turn& again = model_.turns[turn];  // another output of the unit
  start(again);
  finish(again);
  for (const Model::Use& use : again.uses)
    if (const Gradients* gradients = use.bucket->gradients(); gradients != nullptr && gradients->ready_)
      throw Error(ErrorCode::input, model_.strategy,
                  "the unit " + quoted(again.index) + " got a gradient after its gradients were reduced",
                  "return all outputs of a unit through after(), and run one backward for each forward");
}

}  // namespace heddle::sharding
