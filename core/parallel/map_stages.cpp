// Assigns units to stages; refuses what a pipeline cannot cut.
#include <map>
#include <string>
#include <utility>

#include "core/schedule/split.h"
#include "heddle/base/error.h"
#include "heddle/parallel/build.h"

namespace heddle::parallel {
namespace {

// A parameter of two stages would need its gradient summed between them (NeMo AutoModel's text).
void refuse_tied(const std::vector<schedule::NamedUnit>& units, const std::vector<int>& stage_of_unit,
                 const std::string& where) {
  std::map<std::string, int> seen;
  for (size_t i = 0; i < units.size(); ++i)
    for (const std::string& name : units[i].parameters) {
      const int first = seen.emplace(name, stage_of_unit[i]).first->second;
      if (first == stage_of_unit[i]) continue;
      throw Error(ErrorCode::config, where,
                  "Pipeline parallelism does not support tie_word_embeddings=True, and overriding it to "
                  "tie_word_embeddings=False is not supported either. '" +
                      name + "' is used by the stages " + std::to_string(first) + " and " +
                      std::to_string(stage_of_unit[i]),
                  "train this model with pp_size 1, or a model whose embeddings are not tied and that "
                  "has no multi-token prediction heads");
    }
}

}  // namespace

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
  refuse_tied(named, split.stage_of_unit, plan.pipeline.where);
  return {split.stage_of_unit,
          schedule::placement(*plan.schedule, ranks, split.count.stages, plan.pipeline.where)};
}

}  // namespace heddle::parallel
