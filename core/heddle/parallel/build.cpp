// Units to stages: the parallelizers in their order, the strategy, then the values of what was on meta.
#include "heddle/parallel/build.h"

#include <set>
#include <string>
#include <utility>

#include "heddle/parallel/recompute.h"

namespace heddle::parallel {
namespace {

std::set<std::string> parameters_on_meta(const Units& units) {
  std::set<std::string> names;
  for (const auto& unit : units)
    for (const ParameterSlot& slot : unit->parameters())
      if (slot.tensor->is_meta()) names.insert(slot.name);
  return names;
}

}  // namespace

Stages build(Units units, const Plan& plan, const DeviceMesh& mesh, const ParameterSource& source,
             uint64_t seed) {
  const std::set<std::string> on_meta = parameters_on_meta(units);
  const Unit *first = units.empty() ? nullptr : units.front().get(),
             *last = units.empty() ? nullptr : units.back().get();
  std::vector<Placed> placed;
  for (const auto& parallelizer : plan.parallelizers) {
    std::vector<Placed> split = parallelizer->apply(units, mesh);
    placed.insert(placed.end(), split.begin(), split.end());
  }
  if (plan.activation_checkpointing == ActivationCheckpointing::full) recompute(units, first, last);
  Stages stages;
  stages.push_back(plan.strategy->parallelize(std::move(units), mesh, placed));
  for (const auto& stage : stages) {
    for (const Shard& shard : stage->owned())
      if (on_meta.count(shard.name) != 0 && !(source && source(shard))) initialise(shard, seed);
    stage->parameters_changed();
  }
  return stages;
}

}  // namespace heddle::parallel
