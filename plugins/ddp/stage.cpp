// Buckets are filled as gradients come and launched in one fixed order on every rank.
#include "stage.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <map>
#include <string>
#include <utility>

#include "heddle/parallel/after_gradient.h"

namespace heddle::ddp {

DdpStage::DdpStage(Units units, std::span<const Placed> placed, const DeviceMesh& mesh,
                   const Options& options)
    : units_(std::move(units)), mesh_(mesh), options_(options) {
  take_parameters(placed);
  if (mesh_.size("dp") == 1) return;
  ranks_ = &mesh_.group("dp");
  make_replicas_equal();
  make_buckets();
}

// Tied slots share one tensor; what is on meta gets storage.
void DdpStage::take_parameters(std::span<const Placed> placed) {
  std::map<std::string, at::Tensor> seen;
  for (auto& unit : units_) {
    for (ParameterSlot& slot : unit->parameters()) {
      if (auto tied = seen.find(slot.name); tied != seen.end()) {
        shared_.insert(tied->second.unsafeGetTensorImpl());
        if (slot.tensor->is_same(tied->second)) continue;
        if (slot.foreign)
          throw Error(
              ErrorCode::input, "ddp",
              "parameter '" + slot.name + "' has two slots with two tensors, which cannot be tied in place",
              "let both modules hold one tensor, or give the slots two names");
        slot.point(tied->second);
        continue;
      }
      Shard shard = whole_shard(slot, placed);
      if (slot.tensor->is_meta())
        slot.point(at::empty(slot.tensor->sizes(), slot.tensor->options().device(mesh_.device())));
      shard.tensor = *slot.tensor;
      if (slot.foreign) foreign_.push_back(shard.tensor);
      seen.emplace(slot.name, shard.tensor);
      shards_.push_back(std::move(shard));
    }
  }
}

// Our own parameters start from files or from a function of their names; an embedder's may differ between
// ranks.
void DdpStage::make_replicas_equal() {
  for (const at::Tensor& tensor : foreign_) ranks_->broadcast(tensor.detach(), 0)->wait();
}

// A gradient is counted when its hook is called in the last backward. That of a parameter of several units
// may come in parts, one from each unit that is computed again, so it is not counted, and its bucket waits
// for the end of the backward.
void DdpStage::make_buckets() {
  std::vector<at::Tensor> leaves;
  for (auto shard = shards_.rbegin(); shard != shards_.rend(); ++shard)
    if (shard->tensor.requires_grad()) leaves.push_back(shard->tensor);
  for (auto& part : deal(leaves, options_.first_bucket_bytes, options_.bucket_bytes)) {
    Bucket& bucket = *buckets_.emplace_back(std::make_unique<Bucket>(std::move(part)));
    for (int i = 0; i < bucket.size(); ++i) {
      accumulators_.push_back(torch::autograd::impl::grad_accumulator(bucket.leaf(i)));
      owners_.emplace(accumulators_.back().get(), &bucket);
      if (shared_.count(bucket.leaf(i).unsafeGetTensorImpl()) != 0) continue;
      accumulators_.back()->add_post_hook(
          std::make_unique<AfterGradient>([this, &bucket] { gradient_arrived(bucket); }));
    }
  }
}

void DdpStage::begin_step() {
  between_steps_ = false;
  launched_ = 0;
  if (ranks_ == nullptr)
    for (Shard& shard : shards_) shard.tensor.mutable_grad().reset();
  for (auto& bucket : buckets_) options_.add_into_buckets ? bucket->begin_here() : bucket->begin();
}

Tensors DdpStage::forward(Tensors inputs, const Batch& batch) {
  if (between_steps_ && at::GradMode::is_enabled()) begin_step();
  for (auto& unit : units_) inputs = unit->forward(std::move(inputs), batch);
  if (ranks_ != nullptr) watch(inputs, batch.weight_gradients);
  return inputs;
}

// The end of the last backward is told by hooks on the stage's outputs: those on leaves may run in a nested
// backward, whose end comes too early.
void DdpStage::watch(const Tensors& outputs, WeightGradients* queue) {
  for (const at::Tensor& output : outputs) {
    if (!output.defined() || !output.requires_grad()) continue;
    output.register_hook([this, queue](const at::Tensor&) {
      if (queue == nullptr || !queue->defers())
        return torch::autograd::Engine::get_default_engine().queue_callback([this] { end_backward(); });
      queue->when_draining([this](const WeightGradients::Accumulators& leaves) { begin_drain(leaves); });
      queue->when_drained([this] { end_backward(); });
    });
  }
}

// All but these have their gradients already.
void DdpStage::begin_drain(const WeightGradients::Accumulators& leaves) {
  if (!last_backward_) return;
  for (auto& bucket : buckets_) bucket->arrived = bucket->size();
  for (const torch::autograd::Node* leaf : leaves)
    if (const auto owner = owners_.find(leaf); owner != owners_.end()) --owner->second->arrived;
  launch_full();
}

// What is left is launched before the host calls other collectives of the same ranks.
void DdpStage::end_backward() {
  if (last_backward_) reduce_gradients();
}

void DdpStage::gradient_arrived(Bucket& bucket) {
  if (!last_backward_) return;
  ++bucket.arrived;
  launch_full();
}

void DdpStage::launch_full() {
  while (launched_ < buckets_.size() && buckets_[launched_]->arrived == buckets_[launched_]->size())
    buckets_[launched_++]->launch(*ranks_);
}

// What some rank did not use is launched as well, so that collectives agree.
void DdpStage::reduce_gradients() {
  if (between_steps_) begin_step();  // no microbatch at all: every gradient is missing
  while (launched_ < buckets_.size()) buckets_[launched_++]->launch(*ranks_);
}

void DdpStage::finish_gradients() {
  reduce_gradients();
  for (auto& bucket : buckets_) bucket->finish();
  between_steps_ = true;
  last_backward_ = false;
}

}  // namespace heddle::ddp
