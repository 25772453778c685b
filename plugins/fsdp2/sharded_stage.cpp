// The forward: gather this unit, start the next one's gather, run, free.
#include "sharded_stage.h"

#include <ATen/core/grad_mode.h>

#include <utility>

namespace heddle::fsdp2 {
namespace {

std::vector<Gradients*> reversed(std::deque<Gradients>& gradients) {
  std::vector<Gradients*> order;
  for (auto it = gradients.rbegin(); it != gradients.rend(); ++it) order.push_back(&*it);
  return order;
}

std::unique_ptr<Communicator> second_group(const DeviceMesh& mesh, std::string_view axis) {
  return mesh.meeting().group(std::string(axis), mesh.ranks(axis));
}

}  // namespace

ShardedStage::ShardedStage(std::unique_ptr<Model> model, const Options& options, const DeviceMesh& mesh,
                           std::string_view axis)
    : model_(std::move(model)),
      options_(options),
      mesh_(mesh),
      shard_(mesh_.group(axis)),
      reducer_(second_group(mesh, axis),
               mesh.size("dp_replicate") > 1 ? &mesh_.group("dp_replicate") : nullptr,
               reversed(model_->gradients)) {
  for (const Group& group : model_->groups) group.expect(staging_);
  attach_gradient_hooks();
  if (mesh.size("dp_replicate") == 1) return;
  for (Group& group : model_->groups)  // an embedder's replicas may have started from different values
    if (group.foreign()) mesh_.group("dp_replicate").broadcast(group.flat(), 0)->wait();
}

void ShardedStage::begin_step() {
  for (Gradients& gradients : model_->gradients) gradients.begin();
  between_steps_ = flushed_ = false;
}

void ShardedStage::start(Run& run) {
  for (Group* group : run.groups) group->start(shard_, staging_);
}

void ShardedStage::finish(Run& run) {
  for (Group* group : run.groups) group->finish(staging_);
}

Tensors ShardedStage::forward(Tensors inputs, const Batch& batch) {
  if (between_steps_ && at::GradMode::is_enabled()) begin_step();
  std::vector<Run>& runs = model_->runs;
  for (size_t i = 0; i < runs.size(); ++i) {
    start(runs[i]);
    finish(runs[i]);
    if (i + 1 < runs.size()) start(runs[i + 1]);
    inputs = run(*runs[i].unit, std::move(inputs), batch, options_.precision);
    runs[i].has_backward = watch(inputs, i, batch.weight_gradients);
    release_after_forward(i);
  }
  return inputs;
}

// What the next unit computes with as well is left to it. Without a backward to come, only what was asked to
// stay stays.
void ShardedStage::release_after_forward(size_t index) {
  const Run& run = model_->runs[index];
  if (run.stay == Stay::until_last_backward || (run.stay == Stay::until_gradients && run.has_backward))
    return;
  const Run* next = index + 1 < model_->runs.size() ? &model_->runs[index + 1] : nullptr;
  for (Group* group : run.groups)
    if (next == nullptr || !next->uses(group)) group->free();
}

void ShardedStage::unshard() {
  if (!model_->runs.empty()) start(model_->runs.front());
}

void ShardedStage::reshard() {
  for (Group& group : model_->groups) {
    group.finish(staging_);
    group.free();
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
  for (Gradients& gradients : model_->gradients) gradients.place();
  between_steps_ = true;
  last_backward_ = false;
}

std::unique_ptr<ParallelStage> make_sharded_stage(std::unique_ptr<Model> model, const Options& options,
                                                  const DeviceMesh& mesh, std::string_view axis) {
  return std::make_unique<ShardedStage>(std::move(model), options, mesh, axis);
}

}  // namespace heddle::fsdp2
