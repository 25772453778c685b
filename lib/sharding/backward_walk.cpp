// Hooks on units' outputs and on leaves, and the events derived from them.
#include "heddle/sharding/backward_walk.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <limits>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/parallel/after_gradient.h"

namespace heddle {
namespace {

constexpr size_t kNone = std::numeric_limits<size_t>::max();  // no unit; the number of a forward is unknown

}  // namespace

// Called before the node that made a unit's output runs.
struct BackwardWalk::Reached final : torch::autograd::FunctionPreHook {
  // Units that a backward runs again belong to the forward that this backward is in.
  Reached(BackwardWalk& walk, size_t unit, WeightGradients* queue)
      : walk(walk),
        unit(unit),
        forward(walk.running_ ? walk.backward_forward_ : walk.forward_),
        renumbered(!walk.places_.empty()),
        queue(queue) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& gradients) override {
    if (!walk.running_)
      walk.begin(forward, queue);
    else
      walk.reach_forward(forward);
    if (unit != kNone) walk.reach(unit, renumbered);
    return gradients;
  }
  BackwardWalk& walk;
  const size_t unit, forward;
  const bool renumbered;
  WeightGradients* const queue;
};

BackwardWalk::BackwardWalk(Stops& stops, size_t units) : stops_(stops), has_backward_(units, 0) {}

BackwardWalk::~BackwardWalk() = default;

void BackwardWalk::add(const at::Tensor& leaf, size_t bucket, int units) {
  if (bucket >= buckets_.size()) buckets_.resize(bucket + 1);
  ++buckets_[bucket].parameters;
  accumulators_.push_back(torch::autograd::impl::grad_accumulator(leaf));
  bucket_of_.emplace(accumulators_.back().get(), bucket);
  if (units > 1) return;
  accumulators_.back()->add_post_hook(std::make_unique<AfterGradient>(
      [this, bucket, last = uint16_t{0}]() mutable { arrive(bucket, last); }));
}

bool BackwardWalk::watch(size_t unit, const Tensors& outputs, WeightGradients* queue) {
  if (!at::GradMode::is_enabled()) return false;
  has_backward_[unit] = hook(unit, outputs, queue) ? 1 : 0;
  return has_backward_[unit] != 0;
}

// One hook on a node is enough for all its outputs.
bool BackwardWalk::hook(size_t unit, const Tensors& outputs, WeightGradients* queue) {
  const torch::autograd::Node* watched = nullptr;
  bool any = false;
  for (const at::Tensor& output : outputs) {
    if (!output.defined() || !output.requires_grad()) continue;
    any = true;
    const auto& node = output.grad_fn();
    if (node == nullptr) {  // an input returned unchanged
      auto reached = std::make_shared<Reached>(*this, unit, queue);
      output.register_hook([reached](const at::Tensor&) { (*reached)({}); });
    } else if (node.get() != watched) {
      node->add_tensor_pre_hook(std::make_unique<Reached>(*this, unit, queue));
      watched = node.get();
    }
  }
  return any;
}

void BackwardWalk::hook_start(const Tensors& outputs) {
  hook(kNone, outputs, nullptr);
}

void BackwardWalk::expect(size_t unit, bool backward) {
  if (unit >= has_backward_.size()) has_backward_.resize(unit + 1, 0);
  has_backward_[unit] = backward ? 1 : 0;
}

void BackwardWalk::renumber(std::vector<size_t> places, size_t units) {
  places_ = std::move(places);
  has_backward_.assign(units, 0);
}

void BackwardWalk::begin() {
  if (!running_) begin(forward_, nullptr);
}

// Called by hooks on outputs of units, never by those on leaves: for a recomputed unit these run in a nested
// backward, whose end is not the end of the backward.
void BackwardWalk::begin(size_t forward, WeightGradients* queue) {
  stops_.began();
  running_ = true;
  backward_forward_ = forward;
  split_ = queue != nullptr && queue->defers();
  if (split_) {
    queue->when_draining([this](const WeightGradients::Accumulators& leaves) { begin_drain(leaves); });
    queue->when_drained([this] { end_drain(); });
  }
  unreached_ = has_backward_.size();
  torch::autograd::Engine::get_default_engine().queue_callback(
      [this, queue] { end(split_ ? queue : nullptr); });
}

void BackwardWalk::begin_next_forward() {
  if (pass_forward(true)) backward_forward_ = kNone;
}

void BackwardWalk::reach_forward(size_t forward) {
  if (forward == backward_forward_ || forward == kNone) return;
  if (backward_forward_ == kNone || pass_forward(true)) backward_forward_ = forward;
}

void BackwardWalk::reach(size_t unit, bool renumbered) {
  if (!renumbered && !places_.empty()) unit = places_[unit];
  if (unit == unreached_) return;
  if (unit > unreached_) return stops_.reached_again(unit);
  while (unreached_ > unit)
    if (has_backward_[--unreached_]) stops_.approach(unreached_);
  stops_.enter(unit);
}

void BackwardWalk::approach_rest() {
  while (unreached_ > 0)
    if (has_backward_[--unreached_]) stops_.approach(unreached_);
}

bool BackwardWalk::pass_forward(bool another) {
  approach_rest();
  const bool again = stops_.passed_forward(another);
  if (again) unreached_ = has_backward_.size();
  return again;
}

// Walks again where only other ranks have reached another forward.
void BackwardWalk::end(WeightGradients* queue) {
  running_ = false;
  while (pass_forward(false)) {
  }
  forget_arrivals();
  stops_.ended(queue);
}

// `last`: the number of the backward in which this parameter's gradient arrived last. In the first half of a
// split backward nothing is complete.
void BackwardWalk::arrive(size_t bucket, uint16_t& last) {
  Bucket& one = buckets_[bucket];
  if (one.shared || (running_ ? split_ : !draining_)) return;
  if (std::exchange(last, one.backward) != one.backward) {
    if (++one.arrived == one.parameters) stops_.complete(bucket);
    return;
  }
  // The gradient arrives in parts, from nested backwards that recompute parts of a unit.
  if (one.arrived == one.parameters)
    throw Error(ErrorCode::input, "backward",
                "a parameter got a gradient after the gradients of its unit were reduced, because "
                "parts of the unit are recomputed in backwards of their own",
                "checkpoint whole units, or parts of them with use_reentrant=False");
  one.shared = true;
}

// All others have their gradients already.
void BackwardWalk::begin_drain(const WeightGradients::Accumulators& leaves) {
  draining_ = true;
  for (Bucket& bucket : buckets_) bucket.arrived = bucket.parameters;
  for (const torch::autograd::Node* leaf : leaves)
    if (const auto found = bucket_of_.find(leaf); found != bucket_of_.end()) {
      --buckets_[found->second].arrived;
      stops_.awaits(found->second);
    }
  for (size_t i = 0; i < buckets_.size(); ++i)
    if (buckets_[i].arrived == buckets_[i].parameters) stops_.complete(i);
}

void BackwardWalk::end_drain() {
  draining_ = false;
  forget_arrivals();
  stops_.drained();
}

void BackwardWalk::forget_arrivals() {
  for (Bucket& bucket : buckets_) {
    bucket.arrived = 0;
    ++bucket.backward;
  }
}

}  // namespace heddle
