// Expert parallelism: the ranks of ep hold different experts, and tokens are sent to the ranks of their
// experts.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "capacity.h"
#include "config.h"
#include "dispatcher.h"
#include "head.h"
#include "heddle/base/error.h"
#include "heddle/model/autograd_node.h"
#include "heddle/model/module_unit.h"
#include "heddle/model/side_outputs.h"
#include "heddle/nn/router.h"
#include "heddle/parallel/parallelizer.h"
#include "heddle/sdk.h"
#include "parts.h"

namespace heddle::moe {
namespace {

class ExpertParallel : public IParallelizer {
 public:
  explicit ExpertParallel(Config config) : config_(std::move(config)) {}
  Needs needs() const override;
  // Throws Error{mesh} if ep_size does not divide the number of experts or etp_size their width, and
  // Error{config} for a model without experts and for fields of the block that the strategy does not support.
  void check(Units& units, const Sizes& sizes) override;
  // Splits the parameters of all experts by their first dim over ep and by their width over etp, and installs
  // the dispatcher. If both sizes are 1, only installs the capacity.
  std::vector<Placed> apply(Units& units, const DeviceMesh& mesh) override;
  // Counts the choices that exceed the capacity: their number, and their fraction of all choices.
  std::vector<SideOutput*> side_outputs() override;

 private:
  void check_fields() const;
  void make_dispatchers(const DeviceMesh& mesh);
  Experts::Instead::LinkPointer link(const DeviceMesh& mesh);
  Experts::Instead::LinkPointer link_of_parts();
  const Dispatcher& dispatcher(int64_t choices, int ranks) const;
  std::vector<Placed> limit_alone(Units& units, const DeviceMesh& mesh);
  void tell_capacity(const DeviceMesh& mesh) const;
  struct Limited {
    model::Routing routing;
    int64_t most;  // choices per expert; 0: no limit
  };
  Limited limited(const model::Routing& chosen, const Experts& experts, const Batch& batch) const;

  const Config config_;
  std::unique_ptr<Dispatcher> gathered_, all_to_all_;  // over ep
  std::unique_ptr<Dispatcher>
      joined_;  // over etp, for the tokens of gathered_ or all_to_all_; null: experts are whole
  // Metrics over all layers.
  Metric dropped_{"moe/dropped_choices", Combine::sum, {"dp_cp"}, 1, Shown::file};
  Metric dropped_fraction_{"moe/dropped_fraction", Combine::mean};
};

constexpr const char* kAxis = "ep";
constexpr const char* kParts = "etp";  // its ranks split the width of the same experts

// Axis that splits an expert's width, like Megatron-Core's expert_tensor_parallel_size.
AxisInfo parts_axis() {
  AxisInfo axis;
  axis.name = kParts;
  axis.key = "etp_size";
  axis.parallelism = "expert tensor parallelism";
  axis.view = "expert";
  return axis;
}

int size_of(const DeviceMesh& mesh, const char* axis) {
  return mesh.has(axis) ? mesh.size(axis) : 1;
}

int parts_in(const Sizes& sizes) {
  for (const Axis& axis : sizes.plugin_axes)
    if (axis.name == kParts) return axis.size;
  return 1;
}

// Box of a parameter that a rank holds.
class Cut {
 public:
  explicit Cut(const ParameterSlot& slot) : slot_(slot), part_(slot.tensor->detach()) {}
  void along(const char* axis, int64_t dim, const DeviceMesh& mesh) {
    const int64_t whole = part_.size(dim), count = whole / mesh.size(axis), begin = count * mesh.rank(axis);
    part_ = part_.narrow(dim, begin, count);
    placed.push_back({slot_.name, axis, dim, begin, whole});
  }
  void partial(const char* axis) {
    placed.push_back({slot_.name, axis, 0, 0, 0, Placed::Kind::partial_gradient});
  }
  // On meta only the shape is needed. Otherwise returns a copy, so that the whole parameter is freed.
  at::Tensor part() const {
    const at::NoGradGuard no_gradients;
    return part_.clone(at::MemoryFormat::Contiguous);
  }
  std::vector<Placed> placed;

 private:
  const ParameterSlot& slot_;
  at::Tensor part_;
};

Needs ExpertParallel::needs() const {
  Needs needs;
  needs.axes = {kAxis, kParts};
  needs.new_axes = {parts_axis()};
  return needs;
}

void ExpertParallel::check_fields() const {
  const auto refuse = [](const std::string& key) {
    throw Error(ErrorCode::config, "distributed.moe." + key,
                "the strategy has no field " + key + " to override",
                "remove it from the block moe, or set strategy: fsdp2");
  };
  if (config_.moe.reshard_after_forward && is_absent(config_.reshard_after_forward))
    refuse("reshard_after_forward");
  if (config_.moe.mp_policy && is_absent(config_.mp_policy)) refuse("mp_policy");
}

void ExpertParallel::check(Units& units, const Sizes& sizes) {
  const int parts = parts_in(sizes);
  const bool alone = sizes.ep == 1 && parts == 1;
  if (alone && !config_.moe.capacity_factor) return;
  bool any = false;
  model::each<Experts>(units, [&](const std::string& path, Experts& experts) {
    any = true;
    const int64_t count = experts.shape().experts;
    if (count % sizes.ep != 0)
      throw Error(ErrorCode::mesh, "distributed.ep_size",
                  "the number of experts (" + std::to_string(count) + " in '" + path +
                      "') must be divisible by ep_size (" + std::to_string(sizes.ep) + ")",
                  "set ep_size to a divisor of " + std::to_string(count));
    const int64_t width = experts.shape().width;
    if (width % parts != 0)
      throw Error(ErrorCode::mesh, "distributed.etp_size",
                  "the width of an expert (" + std::to_string(width) + " in '" + path +
                      "') must be divisible by etp_size (" + std::to_string(parts) + ")",
                  "set etp_size to a divisor of " + std::to_string(width));
  });
  if (!any && alone)
    throw Error(ErrorCode::config, "distributed.moe.capacity_factor",
                "capacity_factor is set, but the model has no experts",
                "remove the block moe, or train a model with experts");
  if (!any) {
    const std::string key = sizes.ep > 1 ? "ep_size" : "etp_size";
    throw Error(
        ErrorCode::config, "distributed." + key,
        key + " is " + std::to_string(sizes.ep > 1 ? sizes.ep : parts) + ", but the model has no experts",
        "set " + key + ": 1, or train a model with experts");
  }
  if (alone) return;
  check_fields();
  check_head(units, config_.moe);
}

const Dispatcher& ExpertParallel::dispatcher(int64_t choices, int ranks) const {
  const bool gathers = config_.moe.dispatcher == "auto" ? choices >= ranks && !config_.moe.pad_to_capacity
                                                        : config_.moe.dispatcher == "allgather";
  return gathers ? *gathered_ : *all_to_all_;
}

// Returns the choices within the capacity, and the capacity per expert (0: no limit).
ExpertParallel::Limited ExpertParallel::limited(const model::Routing& chosen, const Experts& experts,
                                                const Batch& batch) const {
  if (!config_.moe.capacity_factor) return {chosen, 0};
  const int64_t tokens = batch.padding.defined() ? text_tokens_of(batch) : chosen.experts.size(0);
  const int64_t choices = chosen.experts.size(1);
  const int64_t count = experts.shape().experts;
  const int64_t most = capacity_of(tokens, choices, count, *config_.moe.capacity_factor);
  const Keeps keeps = config_.moe.drop_by == "position" ? Keeps::first : Keeps::largest_weights;
  Limited out{within_capacity(chosen, count, most, keeps), most};
  if (batch.side_outputs == nullptr || chosen.experts.is_meta() || tokens == 0) return out;
  const model::BelowAutograd below;
  const auto all = static_cast<double>(tokens * choices);
  const at::Tensor dropped = all - out.routing.experts.ge(0).sum().to(at::kDouble);
  dropped_.add(dropped, batch);
  dropped_fraction_.add(dropped / all, batch, all);
  return out;
}

Experts::Instead::LinkPointer ExpertParallel::link(const DeviceMesh& mesh) {
  Communicator* const copies =
      mesh.has(kSplitAxis) && mesh.size(kSplitAxis) > 1 ? &mesh.group(kSplitAxis) : nullptr;
  const int ranks = size_of(mesh, kAxis);
  const auto around = [this, copies, ranks](const at::Tensor& x, const model::Routing& chosen,
                                            Experts& experts, const Batch& batch, model::Meanwhile& meanwhile,
                                            const Local& local) {
    const Limited limited = this->limited(chosen, experts, batch);
    if (ranks == 1 && !joined_) return local(x, limited.routing, experts, batch, meanwhile);
    const int64_t padding = config_.moe.pad_to_capacity ? limited.most : 0;
    const auto run = [&](const at::Tensor& tokens, const model::Routing& routing) {
      if (ranks == 1) return local(tokens, routing, experts, batch, meanwhile);
      return dispatcher(chosen.experts.size(1), ranks)
          .run(tokens, routing, experts, batch, meanwhile, local, padding);
    };
    if (copies == nullptr) return run(x, limited.routing);
    model::Routing part;
    at::Tensor own;
    std::tie(own, part.weights) = own_part(x, limited.routing.weights, *copies);
    part.experts = own_part(limited.routing.experts, *copies);
    return whole_of_parts(run(own, part), x.size(0), *copies);
  };
  return Experts::Instead::around("moe", 0, around);
}

// Gathers tokens within etp: every rank of etp needs all tokens that its group received.
Experts::Instead::LinkPointer ExpertParallel::link_of_parts() {
  return Experts::Instead::around(
      "moe", 1,
      [this](const at::Tensor& x, const model::Routing& routing, Experts& experts, const Batch& batch,
             model::Meanwhile& meanwhile, const Local& local) {
        const model::Routing there{routing.experts.to(x.device(), /*non_blocking=*/true), routing.weights};
        return joined_->run(x, there, experts, batch, meanwhile, local, 0);
      });
}

void ExpertParallel::make_dispatchers(const DeviceMesh& mesh) {
  if (size_of(mesh, kAxis) > 1) {
    gathered_ = make_gathered(mesh.group(kAxis));
    all_to_all_ = make_all_to_all(mesh.group(kAxis));
  }
  if (size_of(mesh, kParts) > 1) joined_ = make_joined(mesh.group(kParts));
}

void ExpertParallel::tell_capacity(const DeviceMesh& mesh) const {
  if (!config_.moe.capacity_factor || mesh.rank("world") != 0) return;
  std::ostringstream factor;
  factor << *config_.moe.capacity_factor;
  mesh.log().info(
      "moe", "capacity_factor " + factor.str() + ": an expert gets at most ceil(tokens * top-k / experts * " +
                 factor.str() +
                 ") tokens of a rank and microbatch. Further tokens are dropped, and counted in " +
                 dropped_.spec().name + " and " + dropped_fraction_.spec().name);
}

// Applies the capacity without splitting parameters.
std::vector<Placed> ExpertParallel::limit_alone(Units& units, const DeviceMesh& mesh) {
  if (!config_.moe.capacity_factor) return {};
  const auto own = link(mesh);
  model::each<Experts>(units, [&](const std::string&, Experts& experts) { experts.instead.add(own); });
  return {};
}

std::vector<SideOutput*> ExpertParallel::side_outputs() {
  if (!config_.moe.capacity_factor) return {};
  return {&dropped_, &dropped_fraction_};
}

std::vector<Placed> ExpertParallel::apply(Units& units, const DeviceMesh& mesh) {
  const int parts = size_of(mesh, kParts);
  tell_capacity(mesh);
  if (size_of(mesh, kAxis) == 1 && parts == 1) return limit_alone(units, mesh);
  set_head_precision(units, config_.moe);
  make_dispatchers(mesh);
  const auto own = link(mesh), of_parts = joined_ ? link_of_parts() : nullptr;
  std::map<const at::Tensor*, Experts*> stacked;
  model::each<Experts>(units, [&](const std::string&, Experts& experts) {
    experts.instead.add(own);
    if (of_parts) experts.instead.add(of_parts);
    experts.split_among(parts);
    for (const ParameterSlot& slot : experts.slots()) stacked.emplace(slot.tensor, &experts);
  });
  std::vector<Placed> placed;
  for (const auto& unit : units)
    for (ParameterSlot& slot : unit->parameters()) {
      const auto found = stacked.find(slot.tensor);
      if (found == stacked.end()) continue;
      const Experts& experts = *found->second;
      Cut cut(slot);
      cut.along(kAxis, 0, mesh);
      if (parts > 1 && slot.tensor == &experts.down_bias)
        cut.partial(kParts);
      else if (parts > 1)
        cut.along(kParts, slot.tensor == &experts.down ? 2 : experts.split_dim(), mesh);
      slot.point(cut.part());
      placed.insert(placed.end(), cut.placed.begin(), cut.placed.end());
    }
  return placed;
}

}  // namespace
}  // namespace heddle::moe

HEDDLE_PLUGIN("moe", "0.1.0", "section moe", "parallelizer moe") {
  heddle::OfferedSection& section = plugin.section("moe", "ep_size", heddle::moe::block_schema());
  section.at_size_one = heddle::moe::at_size_one;
  section.strategy_fields = {"reshard_after_forward", "mp_policy"};
  plugin.parallelizer<heddle::moe::ExpertParallel>("moe", heddle::moe::schema());
}
