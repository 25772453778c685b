// The forward: gather this unit, start the next one's gather, run, free.
#include "sharded_stage.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <exception>
#include <map>
#include <utility>

namespace heddle::fsdp2 {
namespace {

std::vector<Gradients*> reversed(std::deque<Gradients>& gradients) {
  std::vector<Gradients*> order;
  for (auto it = gradients.rbegin(); it != gradients.rend(); ++it)
    if (it->group().sharded()) order.push_back(&*it);
  return order;
}

}  // namespace

ShardedStage::ShardedStage(std::unique_ptr<Model> model, const Options& options, const DeviceMesh& mesh)
    : model_(std::move(model)),
      options_(options),
      mesh_(mesh),
      scatters_(add_scatters(mesh)),
      reducer_(reversed(model_->gradients)),
      walk_(*this, model_->runs.size()) {
  if (options.autocast) autocast_.emplace(*options.autocast, model::Autocast::Weights::cast_each_time);
  for (const Group& group : model_->groups) group.expect(memory_);
  watch_gradients();
  for (const Group& group : model_->groups)
    if (group.foreign()) make_equal(group);
}

// One for each axis along which there are shards.
std::vector<std::unique_ptr<Communicator>> ShardedStage::add_scatters(const DeviceMesh& mesh) const {
  std::vector<std::unique_ptr<Communicator>> made;
  std::map<const Communicator*, Communicator*> beside;  // of the group that gathers
  for (Gradients& gradients : model_->gradients) {
    const Group& group = gradients.group();
    if (!group.sharded()) continue;
    Communicator*& scatters = beside[group.shards()];
    if (scatters == nullptr)
      scatters = made.emplace_back(mesh.meeting().group(group.axis(), mesh.ranks(group.axis()))).get();
    gradients.scatters = scatters;
  }
  return made;
}

// An embedder's ranks may have started from different values: what several of them hold is that of the first.
void ShardedStage::make_equal(const Group& group) {
  const auto take_first = [](const at::Tensor& tensor, Communicator& ranks) {
    at::NoGradGuard no_gradients;
    const at::Tensor there = tensor.contiguous();
    ranks.broadcast(there, 0)->wait();
    if (!there.is_same(tensor)) tensor.copy_(there);
  };
  for (const Parameter& parameter : group.parameters()) {
    if (!group.sharded() && group.shards() != nullptr)
      take_first(parameter.shard.tensor.detach(), *group.shards());
    if (group.copies() != nullptr) take_first(parameter.shard.tensor.detach(), *group.copies());
  }
}

void ShardedStage::watch_gradients() {
  for (size_t bucket = 0; bucket < model_->gradients.size(); ++bucket) {
    const Group& group = model_->gradients[bucket].group();
    for (const Parameter& parameter : group.parameters())
      if (parameter.trainable) walk_.add(parameter.leaf, bucket, group.users);
  }
}

void ShardedStage::begin_step() {
  for (Gradients& gradients : model_->gradients) gradients.begin();
  between_steps_ = flushed_ = false;
}

void ShardedStage::start(Run& run) {
  for (Group* group : run.groups) group->start(memory_);
}

void ShardedStage::finish(Run& run) {
  for (Group* group : run.groups) group->finish(memory_);
}

Tensors ShardedStage::forward(Tensors inputs, const Batch& batch) {
  const bool records = at::GradMode::is_enabled();
  if (held_ && records)
    throw Error(ErrorCode::internal, "fsdp2", "a forward with gradients ran while parameters are held whole",
                "end the scope Unsharded before training goes on");
  if (walk_.running() && records)
    throw Error(ErrorCode::internal, "fsdp2", "a forward with gradients follows a backward that did not end",
                "the backward threw, and gradients are not whole: end the run, or build the model anew");
  if (between_steps_ && records) begin_step();
  if (stale_) refresh();
  const model::Autocast::Scope scope(autocast_ ? &*autocast_ : nullptr);
  std::vector<Run>& runs = model_->runs;
  const size_t ahead = static_cast<size_t>(options_.ahead.forward);
  for (size_t i = 0; i < runs.size(); ++i) {
    start(runs[i]);
    finish(runs[i]);
    for (size_t next = i + 1; next < runs.size() && next <= i + ahead; ++next) start(runs[next]);
    inputs = run(*runs[i].unit, std::move(inputs), batch, runs[i].pinned ? Precision() : options_.precision);
    release_after_forward(i, walk_.watch(i, inputs, batch.weight_gradients));
  }
  return inputs;
}

// What a unit whose gather was started ahead computes with as well is left to it. Without a backward to come,
// only what was asked to stay stays.
void ShardedStage::release_after_forward(size_t index, bool backward_comes) {
  const Run& run = model_->runs[index];
  if (held_ || run.stay == Stay::until_last_backward || (run.stay == Stay::until_gradients && backward_comes))
    return;
  const size_t ahead = static_cast<size_t>(std::max<int64_t>(options_.ahead.forward, 1));
  const size_t end = std::min(model_->runs.size(), index + 1 + ahead);
  for (Group* group : run.groups) {
    bool needed = false;
    for (size_t next = index + 1; next < end; ++next) needed = needed || model_->runs[next].uses(group);
    if (!needed) group->free(memory_);
  }
}

void ShardedStage::unshard() {
  if (!model_->runs.empty()) start(model_->runs.front());
}

void ShardedStage::reshard() {
  if (!held_) free_all();
}

void ShardedStage::free_all() {
  for (Group& group : model_->groups) {
    group.finish(memory_);
    group.free(memory_);
  }
}

void ShardedStage::parameters_changed() {
  if (held_)
    throw Error(ErrorCode::internal, "fsdp2", "parameters changed while they are held whole",
                "end the scope Unsharded before the optimizer steps");
  free_all();
  stale_ = true;
}

void ShardedStage::refresh() {
  for (Group& group : model_->groups) group.refresh();
  stale_ = false;
}

std::vector<WholeParameter> ShardedStage::hold_whole() {
  if (held_)
    throw Error(ErrorCode::internal, "fsdp2", "parameters are held whole already",
                "use the scope Unsharded that stands; it does not nest");
  held_ = true;
  try {
    if (stale_) refresh();
    for (Run& run : model_->runs) {
      start(run);
      finish(run);
    }
    return model_->whole();
  } catch (...) {
    release_whole();
    throw;
  }
}

// A gather that broke is given up; the error came out of the call that waited for it.
void ShardedStage::release_whole() {
  held_ = false;
  for (Group& group : model_->groups) {
    try {
      group.finish(memory_);
    } catch (const std::exception&) {
    }
    group.free(memory_);
  }
}

void ShardedStage::expect_last_backward() {
  last_backward_ = true;
  reducer_.expect_last();
}

void ShardedStage::reduce_gradients() {
  if (between_steps_) begin_step();  // no microbatch at all: every gradient is missing
  if (!std::exchange(flushed_, true)) reducer_.flush();
}

void ShardedStage::finish_gradients() {
  reduce_gradients();
  reducer_.finish();
  model_->place_gradients();
  between_steps_ = true;
  last_backward_ = false;
}

std::unique_ptr<ParallelStage> make_sharded_stage(std::unique_ptr<Model> model, const Options& options,
                                                  const DeviceMesh& mesh) {
  return std::make_unique<ShardedStage>(std::move(model), options, mesh);
}

}  // namespace heddle::fsdp2
