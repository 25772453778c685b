// Units to stages: the split, the parallelizers in their order, the strategy, then values for parameters on
// meta.
#include "heddle/parallel/build.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "core/parallel/attach.h"
#include "core/parallel/built/built_stage.h"
#include "core/parallel/built/tied_copies.h"
#include "core/parallel/checks/name_units.h"
#include "core/parallel/checks/ownership.h"
#include "core/parallel/checks/placed_check.h"
#include "core/parallel/features.h"
#include "core/parallel/recompute.h"
#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/mesh/dry.h"
#include "heddle/model/module.h"
#include "heddle/parallel/reduction.h"

namespace heddle::parallel {
namespace {

std::set<std::string> parameters_on_meta(const Units& units) {
  std::set<std::string> names;
  for (const auto& unit : units)
    for (const ParameterSlot& slot : unit->parameters())
      if (slot.tensor->is_meta()) names.insert(slot.name);
  return names;
}

std::optional<at::ScalarType> dtype_of(const PipelineConfig& config) {
  if (config.dtype.empty()) return std::nullopt;
  if (config.dtype == "float32") return at::kFloat;
  if (config.dtype == "bfloat16") return at::kBFloat16;
  if (config.dtype == "float16") return at::kHalf;
  if (config.dtype == "float64") return at::kDouble;
  throw Error(ErrorCode::config, config.where,
              "'" + config.dtype + "' is not a dtype that can flow between stages",
              "use float32, bfloat16, float16 or float64");
}

Pipeline pipeline_of(const Plan& plan, std::vector<int> rank_of_stage) {
  Pipeline pipeline;
  if (plan.schedule == nullptr) return pipeline;
  pipeline.rank_of_stage = std::move(rank_of_stage);
  pipeline.schedule = plan.schedule;
  pipeline.config = plan.pipeline;
  pipeline.dtype = dtype_of(plan.pipeline);
  return pipeline;
}

std::vector<Unit*> units_of(const Units& units, const StageMap& map, int rank) {
  std::vector<Unit*> out;
  for (size_t i = 0; i < units.size(); ++i)
    if (map.rank_of_stage[map.stage_of_unit[i]] == rank) out.push_back(units[i].get());
  return out;
}

// `units` keeps those of this rank's stages, still in one row; returns those of the others, by stage.
std::vector<Units> take_others(Units& units, const StageMap& map, int rank) {
  std::vector<Units> others(map.rank_of_stage.size());
  Units kept;
  for (size_t i = 0; i < units.size(); ++i) {
    const int stage = map.stage_of_unit[i];
    (map.rank_of_stage[stage] == rank ? kept : others[stage]).push_back(std::move(units[i]));
  }
  units = std::move(kept);
  return others;
}

std::string name_of(const Plan& plan, size_t parallelizer) {
  if (parallelizer < plan.parallelizer_names.size()) return plan.parallelizer_names[parallelizer];
  return plan.parallelizers[parallelizer]->name();
}

int64_t size_along(const Units& units, const Placed& one) {
  if (one.kind == Placed::Kind::partial_gradient) return 0;
  for (const auto& unit : units)
    for (const ParameterSlot& slot : unit->parameters())
      if (slot.name == one.parameter) return slot.tensor->size(one.dim);
  return 0;
}

// Alike on every rank: a parallelizer does the same to a stage on all of its ranks.
Split split(Units& units, const Plan& plan, const DeviceMesh& mesh) {
  Split out;
  std::map<std::string, std::vector<std::string>> axes;  // of each parameter
  for (size_t i = 0; i < plan.parallelizers.size(); ++i) {
    const PlacedCheck before(units);
    const std::vector<Placed> placed = plan.parallelizers[i]->apply(units, mesh);
    const std::string name = name_of(plan, i);
    before.check(units, name, placed);
    for (const Placed& one : placed) {
      std::vector<std::string>& all = axes[one.parameter];
      all.push_back(one.axis);
      if (const std::string fault = mesh.axes_error(all); !fault.empty())
        throw Error(
            ErrorCode::plugin_failed, "parallel",
            "the parallelizer '" + name + "' places the parameter '" + one.parameter + "': " + fault,
            "the axes of one parameter are in one view, each once; a parallelizer declares an axis of "
            "its own in Needs::new_axes");
      out.placed.push_back(one);
      out.by.push_back(name);
      out.sizes.push_back(size_along(units, one));
    }
  }
  return out;
}

// A strategy without `reductions` would sum some of these gradients over the wrong ranks.
void check_reductions(const Reductions& reductions, std::span<const Placed> placed, const Plan& plan) {
  const std::vector<std::string> able = plan.strategy->needs().may_use;
  if (std::find(able.begin(), able.end(), kReductions) != able.end()) return;
  for (const Placed& one : placed)
    if (!(reductions.of(one.parameter) == reductions.dense()))
      throw Error(ErrorCode::config, plan.strategy_file.empty() ? "parallel" : plan.strategy_file,
                  "the strategy '" + plan.strategy_name + "' sums every gradient over the same ranks, and '" +
                      one.parameter + "', which is split along " + one.axis + ", is summed over " +
                      (reductions.of(one.parameter).all.empty() ? "none" : reductions.of(one.parameter).all),
                  "choose a strategy whose needs may use '" + std::string(kReductions) + "'");
}

// An embedder's parameters have storage already; it must be on the device of the batches.
void check_device(const std::vector<Unit*>& units, c10::Device device) {
  for (Unit* unit : units)
    for (const ParameterSlot& slot : unit->parameters())
      if (!slot.tensor->is_meta() && slot.tensor->device().type() != device.type())
        throw Error(ErrorCode::input, "parallel",
                    "parameter '" + slot.name + "' is on " + slot.tensor->device().str() +
                        ", and this run computes on " + device.str(),
                    "move the model there, or choose the device with dist_env.backend (gloo: the CPU)");
}

// Strategies make replicas equal along the data axes alone, and values that make_units() drew may differ
// between any two ranks: parameters get those of the stage's first rank, while they are whole.
void take_first_values(const std::vector<Unit*>& units, const DeviceMesh& mesh) {
  const auto splits = [&](const AxisInfo& axis) {
    return axis.kind == AxisKind::model && mesh.size(axis.name) > 1;
  };
  if (std::none_of(mesh.table().axes().begin(), mesh.table().axes().end(), splits)) return;
  std::set<const void*> taken;  // tied slots share one tensor
  for (Unit* unit : units)
    for (const ParameterSlot& slot : unit->parameters()) {
      if (slot.tensor->is_meta() || !taken.insert(slot.tensor->unsafeGetTensorImpl()).second) continue;
      const at::Tensor values = slot.tensor->detach(), sent = values.contiguous();
      for (const Axis& axis : mesh.axes())
        if (axis.name != kPipelineAxis && axis.size > 1) mesh.group(axis.name).broadcast(sent, 0)->wait();
      if (!sent.is_same(values)) values.copy_(sent);
    }
}

// Null without a pipeline: no shapes of other ranks' tensors are needed.
DryRank* dry_pipeline(const DeviceMesh& mesh) {
  return mesh.size(kPipelineAxis) == 1 ? nullptr : dry_rank(mesh);
}

std::unique_ptr<BuiltStage> built_stage(Units units, const Plan& plan, const DeviceMesh& mesh,
                                        std::span<const Placed> placed, const Stages& stages) {
  return std::make_unique<BuiltStage>(plan.strategy->parallelize(std::move(units), mesh, placed), plan,
                                      stages);
}

// The stages before this rank's last one that other ranks hold: only running them tells what they send.
void build_elsewhere(std::vector<Units> others, const Plan& plan, const DeviceMesh& mesh,
                     std::span<const Placed> placed, DryRank& world, Stages& stages) {
  const DryRendezvous::Unlisted unlisted(world);
  std::vector<std::unique_ptr<ParallelStage>> built(stages.indices().back());
  for (size_t stage = 0; stage < built.size(); ++stage)
    if (!others[stage].empty())
      built[stage] = built_stage(std::move(others[stage]), plan, mesh, placed, stages);
  stages.attach_elsewhere(world, std::move(built));
}

std::vector<BuiltStage*> build_stages(Units& units, const StageMap& map, const Plan& plan,
                                      const DeviceMesh& mesh, std::span<const Placed> placed,
                                      const std::vector<TiedParameter>& tied, Stages& stages) {
  std::vector<BuiltStage*> out;
  auto next = std::make_move_iterator(units.begin());
  for (const int index : stages.indices()) {
    const auto end = next + std::count(map.stage_of_unit.begin(), map.stage_of_unit.end(), index);
    Units own(next, end);
    separate_copies(own, index, std::span(stages.indices()).first(stages.size()), tied);
    auto stage = built_stage(std::move(own), plan, mesh, placed, stages);
    out.push_back(stage.get());
    stages.push_back(std::move(stage));
    next = end;
  }
  return out;
}

// Null: no stage of the pipeline shares a parameter with another one.
std::shared_ptr<TiedCopies> tie(const std::vector<TiedParameter>& tied, Stages& stages,
                                const DeviceMesh& mesh) {
  if (tied.empty()) return nullptr;
  auto copies = std::make_shared<TiedCopies>(tied, stages, mesh);
  copies->send_values();
  return copies;
}

// Kernels use these values as indices and do not check them.
void check_places(const Shard& shard) {
  if (shard.init.below == 0 || shard.tensor.numel() == 0) return;
  const auto refuse = [&](int64_t value) {
    throw Error(ErrorCode::input, "model",
                "the parameter '" + shard.name + "' holds " + std::to_string(value) + "; expected 0 to " +
                    std::to_string(shard.init.below - 1),
                "do config.json and the weights belong together?");
  };
  if (const int64_t least = shard.tensor.min().item<int64_t>(); least < 0) refuse(least);
  if (const int64_t most = shard.tensor.max().item<int64_t>(); most >= shard.init.below) refuse(most);
}

void fill_values(const Stages& stages, const DeviceMesh& mesh, const std::set<std::string>& on_meta,
                 const ParameterSource& source, uint64_t seed) {
  const bool dry = dry_rank(mesh) != nullptr;
  for (const auto& stage : stages) {
    for (const Shard& shard : stage->owned()) {
      if (dry || on_meta.count(shard.name) == 0) continue;
      if (source && source(shard))
        check_places(shard);
      else
        initialise(shard, seed);
    }
    stage->parameters_changed(ParametersChange::begun);
  }
}

Stages::Whole whole_of(const Units& units, const Plan& plan) {
  Stages::Whole whole{{}, plan.strategy_name, plan.strategy_file.empty() ? "parallel" : plan.strategy_file};
  for (const auto& unit : units) {
    whole.units.emplace(unit->name());
    for (const ParameterSlot& slot : unit->parameters())
      whole.sizes.emplace(slot.name, slot.tensor->sizes().vec());
  }
  return whole;
}

}  // namespace

Stages build(Units units, const Plan& plan, const DeviceMesh& mesh, const ParameterSource& source,
             uint64_t seed) {
  const int rank = mesh.rank(kPipelineAxis);
  const StageMap map = map_stages(units, plan, mesh.size(kPipelineAxis));
  const Ownership ownership(units, map);
  const std::vector<TiedParameter> tied = tied_parameters(units, map);
  Attached attached = attached_to(units, plan);
  const Unit *first = units.empty() ? nullptr : units.front().get(),
             *last = units.empty() ? nullptr : units.back().get();
  const std::vector<Unit*> own = units_of(units, map, rank);
  check_device(own, mesh.device());
  take_first_values(own, mesh);
  DryRank* const dry = dry_pipeline(mesh);
  Split parts;
  if (dry != nullptr) parts = split(units, plan, mesh);  // as the other ranks do
  std::vector<Units> others = take_others(units, map, rank);
  const std::set<std::string> on_meta = parameters_on_meta(units);
  if (dry == nullptr) parts = split(units, plan, mesh);
  const std::vector<Placed>& placed = parts.placed;
  check_reductions(Reductions(mesh, placed), placed, plan);
  attached.after_update = listeners(units);
  for (const UpdateListener& listener : attached.after_update) listener.told->before_run(mesh);
  recompute(units, first, last, plan.activation_checkpointing);
  name_units(units);
  Stages stages(pipeline_of(plan, map.rank_of_stage), rank);
  stages.expect_whole(whole_of(units, plan));
  const std::vector<BuiltStage*> built = build_stages(units, map, plan, mesh, placed, tied, stages);
  if (dry != nullptr) build_elsewhere(std::move(others), plan, mesh, placed, *dry, stages);
  stages.attach(std::move(attached));
  ownership.check(stages, plan, parts, mesh);
  const std::shared_ptr<TiedCopies> copies = tie(tied, stages, mesh);
  fill_values(stages, mesh, on_meta, source, seed);
  for (BuiltStage* stage : built) stage->complete(mesh, stage == built.back() ? copies : nullptr);
  return stages;
}

}  // namespace heddle::parallel
