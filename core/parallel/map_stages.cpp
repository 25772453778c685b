// Assigns units to stages.
#include <string>
#include <utility>

#include "core/schedule/split.h"
#include "heddle/base/error.h"
#include "heddle/parallel/build.h"

namespace heddle::parallel {
StageMap map_stages(const Units& units, const Plan& plan, int ranks) {
  if (plan.schedule == nullptr) {
    if (ranks > 1)
      throw Error(ErrorCode::mesh, "parallel",
                  "an axis pp of " + std::to_string(ranks) + " ranks, and no schedule to run them",
                  "set Plan::schedule, or leave the axis pp at 1");
    return {std::vector<int>(units.size(), 0), {0}};
  }
  std::vector<schedule::NamedUnit> named;
  for (const auto& unit : units) {
    named.push_back({std::string(unit->name()), {}});
    for (const ParameterSlot& slot : unit->parameters()) named.back().parameters.push_back(slot.name);
  }
  const schedule::StageSplit split =
      schedule::split(named, ranks, plan.pipeline, plan.schedule->stages_per_rank());
  return {split.stage_of_unit,
          schedule::placement(*plan.schedule, ranks, split.count.stages, plan.pipeline.where)};
}

}  // namespace heddle::parallel
