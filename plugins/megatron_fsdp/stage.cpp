// Conversion of Megatron's options to a policy of the sharding engine, deferred weight gradients, and
// gradient checks.
#include "stage.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

namespace heddle::megatron_fsdp {
namespace {

using sharding::Policy;

// By default two of the largest units may be in flight if buffers are freed after the reduction. Other
// buffers stay allocated anyway.
int64_t reduce_limit(const Options& options, const sharding::Model& model) {
  if (options.elements_in_flight) return *options.elements_in_flight;
  return options.split.gradients ? 2 * largest_unit(model) : sharding::kUnlimited;
}

int64_t gather_room(const Options& options, const sharding::Model& model) {
  if (!options.overlap_gather) return 0;
  if (options.elements_in_flight) return *options.elements_in_flight / 2;
  return options.split.parameters ? largest_unit(model) : largest_bucket(model);
}

Policy policy_of(const Options& options, const sharding::Model& model) {
  Policy policy;
  const bool by_turns = options.buffering != Buffering::from_the_allocator;
  policy.forward = {by_turns ? 1 : sharding::kUnlimited, gather_room(options, model)};
  policy.backward = policy.forward;
  policy.reduce_each_microbatch = options.split.gradients;
  policy.reduce_behind_backward = options.overlap_reduce && !options.check_parameters;
  policy.buckets_in_flight = by_turns ? 2 : model.order.size();
  policy.elements_in_flight = reduce_limit(options, model);
  if (!options.split.parameters && (options.gather_all_after_update || !options.overlap_gather))
    policy.gather_after_update = Policy::AfterUpdate::all_units;
  else if (options.gather_first_after_update)
    policy.gather_after_update = Policy::AfterUpdate::first_unit;
  policy.wait_after_update = !options.overlap_gather;
  return policy;
}

// Disables splits over one rank, so that gradients are reduced once per step instead of once per microbatch.
Options fitting(Options options, const std::vector<sharding::Groups>& all) {
  if (std::all_of(all.begin(), all.end(), [](const auto& groups) { return groups.shards == 1; }))
    options.split = {};
  return options;
}

// Returns one group per distinct reduction, that of dense parameters first.
std::vector<sharding::Groups> groups_of(const Reductions& reductions, const DeviceMesh& mesh) {
  std::vector<sharding::Groups> out;
  for (const Reduction& reduction : reductions.distinct())
    out.push_back(sharding::groups_over(mesh, reduction));
  return out;
}

std::vector<Ranks> ranks_of(const std::vector<sharding::Groups>& all, const Options& options,
                            const DeviceMesh& mesh) {
  std::vector<Ranks> out;
  for (const sharding::Groups& groups : all) {
    const Checks checks(options, mesh.rendezvous().rank(), mesh.log());
    out.push_back({groups, std::make_shared<Shared>(Shared{Sums(options, groups, all.front().ranks()), checks,
                                                           options.overlap_reduce})});
  }
  return out;
}

}  // namespace

struct Stage::Parts {
  Parts(Units units, std::span<const Placed> placed, const Options& given, const DeviceMesh& mesh)
      : reductions(mesh, placed),
        groups(groups_of(reductions, mesh)),
        options(fitting(given, groups)),
        ranks(ranks_of(groups, options, mesh)),
        model(make_model(
            std::move(units),
            {options, placed,
             [this](const std::string& name) -> const Ranks& { return of(reductions.of(name)); }, mesh})),
        double_buffers(assign_double_buffers(model, options, mesh.device())),
        policy(policy_of(options, model)) {}

  const Ranks& of(const Reduction& reduction) const {
    return *std::find_if(ranks.begin(), ranks.end(),
                         [&](const Ranks& one) { return one.groups.axes == reduction; });
  }

  Reductions reductions;
  std::vector<sharding::Groups> groups;
  Options options;
  std::vector<Ranks> ranks;
  sharding::Model model;
  std::deque<sharding::DoubleBuffer> double_buffers;
  Policy policy;
};

Stage::Stage(Units units, std::span<const Placed> placed, const Options& options, const DeviceMesh& mesh)
    : Stage(Parts(std::move(units), placed, options, mesh), mesh) {}

Stage::Stage(Parts parts, const DeviceMesh& mesh)
    : ShardedStage(std::move(parts.model), parts.policy, mesh, parts.groups.front()),
      shared_(parts.ranks.front().shared),
      double_buffers_(std::move(parts.double_buffers)),
      weights_last_(parts.options.weights_last) {}

Tensors Stage::forward(Tensors inputs, const Batch& batch) {
  if (!weights_last_ || batch.weight_gradients != nullptr || !at::GradMode::is_enabled())
    return ShardedStage::forward(std::move(inputs), batch);
  Batch mine = batch;
  mine.weight_gradients = own_queue();
  return ShardedStage::forward(std::move(inputs), mine);
}

// Returns the first free queue, set to defer.
WeightGradients* Stage::own_queue() {
  if (idle_queues_.empty()) idle_queues_.push_back(&queues_.emplace_back());
  WeightGradients* queue = idle_queues_.back();
  idle_queues_.pop_back();
  queue->defer();
  return queue;
}

void Stage::ended(WeightGradients* queue) {
  ShardedStage::ended(queue);
  if (queue != nullptr && !queues_.empty()) queue->drain();
}

void Stage::drained() {
  if (!queues_.empty()) {
    idle_queues_.clear();
    for (WeightGradients& queue : queues_)
      if (queue.empty() && !queue.defers()) idle_queues_.push_back(&queue);
  }
  ShardedStage::drained();
}

void Stage::microbatch_complete() {
  if (shared_->checks.parameters())
    for (const sharding::Gradients* gradients : model().order)
      shared_->checks.look_at_parameters(static_cast<const Gradients&>(*gradients), microbatch_);
  ++microbatch_;
}

void Stage::finish_gradients() {
  ShardedStage::finish_gradients();
  microbatch_ = 0;
}

}  // namespace heddle::megatron_fsdp
