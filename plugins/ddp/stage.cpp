// Stage of DDP: parameters, buffers, and the hooks that tell the reducer where the backward is.
#include "stage.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <map>
#include <string>
#include <utility>

#include "heddle/model/unit.h"
#include "heddle/parallel/shard.h"

namespace heddle::ddp {
namespace {

// Copies rank 0's values to the other ranks.
void copy_from_first(const at::Tensor& tensor, Communicator& ranks) {
  const at::Tensor dense = tensor.contiguous();
  ranks.broadcast(dense, 0)->wait();
  if (!dense.is_alias_of(tensor)) tensor.copy_(dense);
}

}  // namespace

DdpStage::DdpStage(Units units, std::span<const Placed> placed, const DeviceMesh& mesh,
                   const Options& options, Buffers buffers, std::optional<at::ScalarType> autocast)
    : units_(std::move(units)), mesh_(mesh), reductions_(mesh, placed), send_(buffers) {
  if (autocast) autocast_.emplace(*autocast, model::Autocast::Weights::kept);
  take_parameters(placed);
  ranks_ = ranks_of(reductions_.dense());
  if (ranks_ != nullptr) take_buffers();
  make_replicas_equal();
  for (const Reduction& reduction : reductions_.distinct()) {
    std::vector<Leaf> summed = leaves(reduction);
    if (Communicator* ranks = ranks_of(reduction); ranks != nullptr)
      reducers_.push_back(std::make_unique<Reducer>(std::move(summed), *ranks, options));
    else
      for (const Leaf& leaf : summed) unsummed_.push_back(leaf.tensor);
  }
}

Communicator* DdpStage::ranks_of(const Reduction& reduction) const {
  return mesh_.size(reduction.all) > 1 ? &mesh_.group(reduction.all) : nullptr;
}

// Tied slots share one tensor. Tensors on meta get storage.
void DdpStage::take_parameters(std::span<const Placed> placed) {
  std::map<std::string, at::Tensor> seen;
  for (auto& unit : units_) {
    std::vector<ParameterSlot> slots = unit->parameters();
    std::vector<ParameterSlot*> fresh;
    for (ParameterSlot& slot : slots) {
      if (!seen.emplace(slot.name, at::Tensor()).second) continue;
      fresh.push_back(&slot);
      if (!slot.tensor->is_meta()) valued_.emplace_back(*slot.tensor, ranks_of(reductions_.of(slot.name)));
    }
    parallel::lay_flat(fresh, mesh_.device());
    for (ParameterSlot& slot : slots) {
      at::Tensor& first = seen.at(slot.name);
      if (first.defined()) {
        shared_.insert(first.unsafeGetTensorImpl());
        if (slot.tensor->is_same(first)) continue;
        if (slot.foreign)
          throw Error(
              ErrorCode::input, "ddp",
              "parameter '" + slot.name + "' has two slots with two tensors, which cannot be tied in place",
              "let both modules hold one tensor, or give the slots two names");
        slot.point(first);
        continue;
      }
      Shard shard = whole_shard(slot, placed);
      first = shard.tensor = *slot.tensor;
      shards_.push_back(std::move(shard));
    }
  }
}

void DdpStage::take_buffers() {
  for (auto& unit : units_)
    if (auto* with_buffers = dynamic_cast<UnitBuffers*>(unit.get()))
      for (const at::Tensor& buffer : with_buffers->buffers()) buffers_.push_back(buffer.detach());
}

// Broadcasts rank 0's values of parameters that already have values. Core initializes parameters on meta
// identically on every rank.
void DdpStage::make_replicas_equal() {
  const at::NoGradGuard no_gradients;
  for (const auto& [tensor, ranks] : std::exchange(valued_, {})) {
    if (ranks != nullptr) copy_from_first(tensor.detach(), *ranks);
  }
  for (const at::Tensor& buffer : buffers_) copy_from_first(buffer, *ranks_);
}

// Returns the leaves that are summed over the ranks of `reduction`.
std::vector<Leaf> DdpStage::leaves(const Reduction& reduction) const {
  std::vector<Leaf> leaves;
  for (auto shard = shards_.rbegin(); shard != shards_.rend(); ++shard)
    if (shard->tensor.requires_grad() && reductions_.of(shard->name) == reduction)
      leaves.push_back({shard->name, shard->tensor, shared_.count(shard->tensor.unsafeGetTensorImpl()) != 0});
  return leaves;
}

void DdpStage::begin_step() {
  between_steps_ = false;
  for (const auto& reducer : reducers_) reducer->begin_step();
  for (const at::Tensor& tensor : unsummed_) tensor.mutable_grad().reset();
}

// Runs once per step and once for the evaluation after it. Between two forwards of a step replicas may
// differ, as under PyTorch's no_sync.
void DdpStage::send_buffers() {
  buffers_differ_ = at::GradMode::is_enabled();
  std::vector<std::unique_ptr<Work>> sent;
  for (const at::Tensor& buffer : buffers_)
    if (buffer.is_contiguous()) sent.push_back(ranks_->broadcast(buffer, 0));
  for (const auto& work : sent) work->wait();
  for (const at::Tensor& buffer : buffers_)
    if (!buffer.is_contiguous()) copy_from_first(buffer, *ranks_);
}

Tensors DdpStage::forward(Tensors inputs, const Batch& batch) {
  begin_forward(batch);
  {
    const model::Autocast::Scope scope(autocast_ ? &*autocast_ : nullptr);
    for (auto& unit : units_) inputs = unit->forward(std::move(inputs), batch);
  }
  after(units_.size(), inputs);
  end_forward();
  return inputs;
}

void DdpStage::begin_forward(const Batch& batch) {
  const bool training = at::GradMode::is_enabled(), first = training && between_steps_;
  if (first) begin_step();
  if (send_ == Buffers::from_rank_0 && !buffers_.empty() && (first || (!training && buffers_differ_)))
    send_buffers();
  roots_ = std::make_shared<Roots>();
  queue_ = batch.weight_gradients;
  in_forward_ = true;
  in_backward_ = false;  // also after a backward that threw
}

// Registers no hook on the outputs of a unit that a backward recomputes: such a hook would run in a nested
// backward, which ends too early.
void DdpStage::before(size_t /*unit*/) {
  if (!in_forward_ && torch::autograd::get_current_graph_task_id() < 0)
    throw Error(ErrorCode::input, "ddp", "a unit runs outside of a forward", "call begin_forward() first");
  if (!in_forward_ && !reducers_.empty() && roots_) begin_backward(*roots_, nullptr);
}

// Hooks on outputs detect the end of the last backward. Hooks on leaves may run in a nested backward, which
// ends too early.
void DdpStage::after(size_t /*unit*/, const Tensors& outputs) {
  if (!in_forward_ || reducers_.empty()) return;
  for (const at::Tensor& output : outputs) {
    if (!output.defined() || !output.requires_grad()) continue;
    roots_->push_back(output.grad_fn());
    output.register_hook(
        [this, queue = queue_, roots = roots_](const at::Tensor&) { begin_backward(*roots, queue); });
  }
}

void DdpStage::begin_backward(std::span<const std::weak_ptr<torch::autograd::Node>> roots,
                              WeightGradients* queue) {
  if (queue == nullptr || !queue->defers()) {
    if (std::exchange(in_backward_, true)) return;
    for (const auto& reducer : reducers_) reducer->begin_backward(roots);
    return torch::autograd::Engine::get_default_engine().queue_callback([this] { end_backward(); });
  }
  queue->when_draining([this](const WeightGradients::Accumulators& leaves) {
    for (const auto& reducer : reducers_) reducer->begin_drain(leaves);
  });
  queue->when_drained([this] { end_backward(); });
}

void DdpStage::end_backward() {
  in_backward_ = false;
  for (const auto& reducer : reducers_) reducer->end_backward();
}

std::optional<at::ScalarType> DdpStage::autocast() const {
  return autocast_ ? std::optional(autocast_->dtype()) : std::nullopt;
}

void DdpStage::parameters_changed(ParametersChange) {
  if (autocast_) autocast_->parameters_changed();
}

void DdpStage::expect_last_backward() {
  for (const auto& reducer : reducers_) reducer->expect_last();
}

void DdpStage::reduce_gradients() {
  if (between_steps_) begin_step();  // no microbatch ran, so every gradient is missing
  for (const auto& reducer : reducers_) reducer->launch_rest();
}

void DdpStage::finish_gradients() {
  reduce_gradients();
  for (const auto& reducer : reducers_) reducer->finish();
  between_steps_ = true;
}

}  // namespace heddle::ddp
