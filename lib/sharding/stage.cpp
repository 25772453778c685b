// The forward: gather this unit, start the next ones' gathers, run, free; and what happens between steps.
#include "heddle/sharding/stage.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "heddle/base/error.h"
#include "host_forward.h"
#include "reducer.h"
#include "used_parameters.h"

namespace heddle::sharding {

ShardedStage::ShardedStage(Model model, const Policy& policy, const DeviceMesh& mesh, const Groups& groups)
    : mesh_(mesh),
      groups_(groups),
      model_(std::move(model)),
      policy_(policy),
      reducer_(std::make_unique<Reducer>(model_, policy_)),
      trained_(model_.order),
      walk_(*this, model_.turns.size()),
      sharded_(model_.buckets.size()),
      passed_(model_.turns.size()) {
  if (policy_.agree_on_used) used_parameters_ = std::make_unique<UsedParameters>(model_, groups_);
  watch_leaves();
}

// Buckets are notified after the reductions, which may wait for other ranks.
ShardedStage::~ShardedStage() {
  for (const auto& bucket : model_.buckets) {
    try {
      finish(*bucket);
    } catch (...) {  // a rank is lost; the error was thrown to the waiting caller
    }
  }
  reducer_->abandon();
  if (used_parameters_) used_parameters_->abandon();
}

void ShardedStage::watch_leaves() {
  const std::map<std::string, int> users = users_of(model_.units);
  for (const auto& bucket : model_.buckets)
    if (bucket->gradients() != nullptr)
      for (const Parameter& parameter : bucket->parameters())
        if (parameter.trainable())
          walk_.add(parameter.leaf, bucket->gradients()->turn_, users.at(parameter.name));
}

void ShardedStage::begin_step() {
  for (Gradients* gradients : model_.order) gradients->begin_step();
  between_steps_ = flushed_ = false;
}

void ShardedStage::start(Bucket& bucket) {
  if (bucket.state_ != Bucket::State::sharded) return;
  at::NoGradGuard no_gradients;
  bucket.work_ = bucket.gather();
  bucket.state_ = bucket.work_ ? Bucket::State::gathering : Bucket::State::whole;
  --sharded_;
}

void ShardedStage::start(const Turn& turn) {
  for (const Model::Use& use : turn.uses) start(*use.bucket);
}

// A failed gather is dropped: its target can be freed.
void ShardedStage::finish(Bucket& bucket) {
  if (bucket.state_ != Bucket::State::gathering) return;
  bucket.state_ = Bucket::State::whole;
  std::exchange(bucket.work_, {})->wait();
  bucket.gathered();
}

void ShardedStage::finish(const Turn& turn) {
  for (const Model::Use& use : turn.uses) finish(*use.bucket);
}

void ShardedStage::free(Bucket& bucket) {
  if (bucket.state_ != Bucket::State::whole || held_ || bucket.open_ > 0 || !bucket.transient()) return;
  bucket.free();
  bucket.state_ = Bucket::State::sharded;
  ++sharded_;
}

void ShardedStage::free_all() {
  for (const auto& bucket : model_.buckets) {
    finish(*bucket);
    free(*bucket);
  }
}

// Subtracts the elements not gathered yet from the budget of gathers ahead. False: too many.
bool ShardedStage::start_within(const Turn& turn, int64_t& elements) {
  int64_t more = 0;
  for (const Model::Use& use : turn.uses)
    if (use.bucket->state_ != Bucket::State::whole) more += use.bucket->elements();
  if (more > elements) return false;
  elements -= more;
  start(turn);
  return true;
}

// Returns the last unit whose gather was started; all of them where every bucket is whole.
size_t ShardedStage::gather_ahead(size_t unit) {
  if (sharded_ == 0) return model_.turns.size();
  Lookahead left = policy_.forward;
  if (left.elements == 0) return unit;
  for (size_t next = unit + 1; next < model_.turns.size() && left.units-- > 0; ++next) {
    if (!start_within(model_.turns[next], left.elements)) break;
    unit = next;
  }
  return unit;
}

void ShardedStage::check_gradients_may_come() const {
  if (held_)
    throw Error(ErrorCode::internal, model_.strategy,
                "a forward with gradients ran while parameters are held whole",
                "end the scope Unsharded before training goes on");
  if (walk_.running())
    throw Error(ErrorCode::internal, model_.strategy,
                "a forward with gradients follows a backward that did not end",
                "the backward threw, and gradients are not whole: end the run, or build the model anew");
}

Tensors ShardedStage::forward(Tensors inputs, const Batch& batch) {
  if (host_)
    throw Error(ErrorCode::internal, model_.strategy, "forward() of a stage whose units a host runs",
                "call begin_forward() and end_forward() around the host's forward");
  open_forward(batch);
  for (size_t i = 0; i < model_.turns.size(); ++i) {
    start(model_.turns[i]);
    finish(model_.turns[i]);
    const size_t reached = gather_ahead(i);
    inputs = run(i, std::move(inputs), batch);
    release_after_forward(i, reached, walk_.watch(i, inputs, queue_));
  }
  return inputs;
}

void ShardedStage::open_forward(const Batch& batch) {
  queue_ = batch.weight_gradients;
  if (!at::GradMode::is_enabled()) return;
  check_gradients_may_come();
  if (between_steps_) begin_step();
}

Tensors ShardedStage::run(size_t unit, Tensors inputs, const Batch& batch) {
  return model_.turns[unit].unit->forward(std::move(inputs), batch);
}

// Parameters that a unit gathered ahead also uses are left to it, and those of the next unit in any case. If
// no backward comes, only parameters that stay for the step stay.
void ShardedStage::release_after_forward(size_t unit, size_t reached, bool backward_comes) {
  const Turn& turn = model_.turns[unit];
  if (turn.reshard == Reshard::after_backward && backward_comes) return;
  reached = std::max(reached, unit + 1);
  for (const Model::Use& use : turn.uses) {
    const bool needed = use.next < model_.turns.size() && use.next <= reached;
    if (!needed && !use.bucket->stays_ && !use.bucket->around_) free(*use.bucket);
  }
}

// Starts the gathers that the first unit would start, and those of units that stay whole until reshard(): the
// schedule bounds the memory of whole parameters, but not the memory that a gather takes beside them.
void ShardedStage::unshard() {
  if (model_.turns.empty()) return;
  start(model_.turns.front());
  gather_ahead(0);
  for (const Turn& turn : model_.turns) {
    if (turn.reshard != Reshard::after_last_backward) continue;
    for (const Model::Use& use : turn.uses)
      if (!use.bucket->gathers_beside()) start(*use.bucket);
  }
}

void ShardedStage::reshard() {
  if (!held_) free_all();
}

void ShardedStage::parameters_changed(ParametersChange) {
  if (held_)
    throw Error(ErrorCode::internal, model_.strategy, "parameters changed while they are held whole",
                "end the scope Unsharded before the optimizer steps");
  free_all();
  for (const auto& bucket : model_.buckets)
    if (bucket->changed() && bucket->state_ == Bucket::State::whole) {
      bucket->state_ = Bucket::State::sharded;
      ++sharded_;
    }
  if (policy_.gather_after_update == Policy::AfterUpdate::first_unit && !model_.turns.empty())
    start(model_.turns.front());
  if (policy_.gather_after_update == Policy::AfterUpdate::all_units)
    for (const Turn& turn : model_.turns) start(turn);
  if (!policy_.wait_after_update) return;
  for (const auto& bucket : model_.buckets) finish(*bucket);
}

// Nothing is reduced before a backward, so only gathered parameters are given back.
void ShardedStage::restart_step() {
  free_all();
  between_steps_ = true;
  last_ended_ = false;
  if (host_) host_->pending = 0;
}

void ShardedStage::reduce_gradients() {
  if (between_steps_) begin_step();  // no microbatch: every gradient is missing
  if (std::exchange(flushed_, true)) return;
  reducer_->flush(/*last=*/true);
  if (used_parameters_) used_parameters_->start();
}

void ShardedStage::finish_gradients() {
  reduce_gradients();
  reducer_->finish();
  if (used_parameters_) {
    used_parameters_->finish();
  } else {
    for (Gradients* gradients : model_.order) gradients->place({});
  }
  between_steps_ = true;
  last_backward_ = last_ended_ = false;
  if (host_) host_->pending = 0;
}

std::vector<WholeParameter> ShardedStage::hold_whole() {
  if (held_)
    throw Error(ErrorCode::internal, model_.strategy, "parameters are held whole already",
                "use the existing scope Unsharded; it does not nest");
  held_ = true;
  std::vector<WholeParameter> whole;
  try {
    for (size_t i = 0; i < model_.buckets.size(); ++i) {  // one gather starts before the wait for another
      start(*model_.buckets[i]);
      if (i + 1 < model_.buckets.size()) start(*model_.buckets[i + 1]);
      finish(*model_.buckets[i]);
    }
  } catch (...) {
    release_whole();
    throw;
  }
  for (const Parameter& parameter : model_.parameters)
    whole.push_back({parameter.name, parameter.leaf.detach()});
  return whole;
}

// A failed gather is dropped; the waiting call threw the error.
void ShardedStage::release_whole() {
  held_ = false;
  for (const auto& bucket : model_.buckets) {
    try {
      finish(*bucket);
    } catch (...) {
    }
    free(*bucket);
  }
}

}  // namespace heddle::sharding
