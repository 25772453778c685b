// The number of stages, the layers of each, and the units by layers or by names.
#include "core/schedule/split.h"

#include <algorithm>
#include <cctype>

#include "heddle/base/error.h"
#include "heddle/base/text.h"

namespace heddle::schedule {
namespace {

using std::to_string;

// The values of the YAML and what they resolve to, for messages.
struct Asked {
  int64_t layers, per_stage, stages;
  int ranks;
  std::string model() const {
    return "Model has " + to_string(layers) +
           " layers with pipeline_parallel_layers_per_stage=" + to_string(per_stage);
  }
  std::string result() const {
    return "resulting in num_virtual_stages=" + to_string(stages) + " across " + to_string(ranks) +
           " PP ranks";
  }
};

int64_t rounded(const Asked& asked, const PipelineConfig& config) {
  const int64_t over = asked.stages % asked.ranks;
  if (over == 0) return asked.stages;
  if (config.rounding == StageRounding::up) return asked.stages + asked.ranks - over;
  // Rounding down to zero would leave no stage: at least one per rank.
  if (config.rounding == StageRounding::down) return std::max<int64_t>(asked.stages - over, asked.ranks);
  throw Error(ErrorCode::config, config.where,
              "Number of virtual stages (" + to_string(asked.stages) +
                  ") must be divisible by pipeline parallel size (" + to_string(asked.ranks) + "). " +
                  asked.model() +
                  ". Please adjust pipeline_parallel_layers_per_stage to a value that results in a number "
                  "of stages divisible by " +
                  to_string(asked.ranks) + ".",
              "change layers_per_stage, or set round_virtual_stages_to_pp_multiple to up or down");
}

void refuse_by_schedule(const Asked& asked, int64_t per_rank, const PipelineConfig& config,
                        StagesPerRank takes) {
  if (per_rank >= takes.least && per_rank <= takes.most) return;
  const std::string got = ", but got " + to_string(per_rank) + " stages per rank. " + asked.model() + ", " +
                          asked.result() + ". ";
  if (takes.most == 1)
    throw Error(ErrorCode::config, config.where,
                "Single stage schedule requires exactly 1 stage per rank" + got +
                    "Please increase pipeline_parallel_layers_per_stage to " +
                    to_string(asked.layers / asked.ranks) + " or higher to achieve 1 stage per rank.",
                "change layers_per_stage, or choose a schedule that takes several stages per rank");
  if (per_rank < takes.least)
    throw Error(ErrorCode::config, config.where,
                "Multi-stage schedule requires at least " + to_string(takes.least) + " stages per rank" +
                    got + "Please decrease pipeline_parallel_layers_per_stage to " +
                    to_string(asked.layers / (takes.least * asked.ranks)) + " or lower to achieve at least " +
                    to_string(takes.least) + " stages per rank.",
                "change layers_per_stage, or choose a schedule that takes one stage per rank");
  throw Error(ErrorCode::config, config.where,
              "this schedule takes at most " + to_string(takes.most) + " stages per rank" + got, "");
}

// "layers.3" ends in a number.
bool is_layer(const std::string& name) {
  const size_t dot = name.rfind('.');
  const size_t from = dot == name.npos ? 0 : dot + 1;
  return from < name.size() && std::all_of(name.begin() + from, name.end(),
                                           [](unsigned char letter) { return std::isdigit(letter) != 0; });
}

// The layers' indices among the units.
std::vector<size_t> layers_of(std::span<const NamedUnit> units) {
  std::vector<size_t> layers;
  for (size_t unit = 0; unit < units.size(); ++unit)
    if (is_layer(units[unit].name)) layers.push_back(unit);
  if (layers.empty())
    for (size_t unit = 0; unit < units.size(); ++unit) layers.push_back(unit);
  return layers;
}

StageSplit by_layers(std::span<const NamedUnit> units, int ranks, const PipelineConfig& config,
                     StagesPerRank takes) {
  const std::vector<size_t> layers = layers_of(units);
  StageSplit split{count_stages(static_cast<int64_t>(layers.size()), ranks, config, takes),
                   std::vector<int>(units.size(), 0)};
  const auto share = layers_of_stages(static_cast<int64_t>(layers.size()), split.count.stages, config.where);
  size_t layer = 0;
  for (int stage = 0; stage < split.count.stages; ++stage)
    for (int64_t i = 0; i < share[stage]; ++i) split.stage_of_unit[layers[layer++]] = stage;
  // A unit between two layers goes with the layer before it.
  for (size_t unit = layers.front() + 1; unit < units.size(); ++unit)
    split.stage_of_unit[unit] = std::max(split.stage_of_unit[unit], split.stage_of_unit[unit - 1]);
  return split;
}

// One name of a module, looked up among the units.
class Names {
 public:
  Names(std::span<const NamedUnit> units, const std::string& where) : units_(units), where_(where) {}

  // The unit that the name means, or -1 for a module without parameters, which is on every stage.
  int unit_of(const std::string& name) const {
    int found = -1;
    for (int unit = 0; unit < static_cast<int>(units_.size()); ++unit) {
      if (units_[unit].name == name) return unit;
      if (name.starts_with(units_[unit].name + ".")) refuse_part(name, units_[unit].name);
      if (!owns(units_[unit], name)) continue;
      if (found >= 0)
        throw Error(ErrorCode::config, where_,
                    "module_fqns_per_model_part: '" + name + "' is more than one unit: '" +
                        units_[found].name + "' and '" + units_[unit].name + "' at least",
                    "name each of them");
      found = unit;
    }
    if (found < 0 && !name.ends_with("rotary_emb")) refuse_unknown(name);
    return found;
  }

 private:
  static bool owns(const NamedUnit& unit, const std::string& name) {
    return std::any_of(unit.parameters.begin(), unit.parameters.end(),
                       [&](const std::string& parameter) { return parameter.starts_with(name + "."); });
  }
  [[noreturn]] void refuse_part(const std::string& name, const std::string& unit) const {
    throw Error(ErrorCode::config, where_,
                "module_fqns_per_model_part: '" + name + "' is a part of the unit '" + unit +
                    "', and stages are cut between units",
                "name '" + unit + "'");
  }
  [[noreturn]] void refuse_unknown(const std::string& name) const {
    std::vector<std::string> all;
    for (const NamedUnit& unit : units_) all.push_back(unit.name);
    const std::string nearest = text::nearest(name, all);
    throw Error(ErrorCode::config, where_,
                "module_fqns_per_model_part: the model has no module '" + name + "'; its units are " +
                    text::join(all),
                nearest.empty() ? "" : "did you mean '" + nearest + "'?");
  }

  std::span<const NamedUnit> units_;
  const std::string& where_;
};

void refuse_gaps(std::span<const NamedUnit> units, const std::vector<int>& stage_of_unit, int stages,
                 const std::string& where) {
  for (size_t unit = 0; unit < units.size(); ++unit) {
    const int stage = stage_of_unit[unit];
    if (stage < 0)
      throw Error(ErrorCode::config, where,
                  "module_fqns_per_model_part: no stage names the unit '" + units[unit].name + "'",
                  "name every unit once");
    if (unit > 0 && stage < stage_of_unit[unit - 1])
      throw Error(ErrorCode::config, where,
                  "module_fqns_per_model_part: '" + units[unit].name + "' is on stage " + to_string(stage) +
                      ", before '" + units[unit - 1].name + "' on stage " +
                      to_string(stage_of_unit[unit - 1]) + ", which runs first",
                  "list the modules in the order of the model");
  }
  for (int stage = 0; stage < stages; ++stage)
    if (std::find(stage_of_unit.begin(), stage_of_unit.end(), stage) == stage_of_unit.end())
      throw Error(ErrorCode::config, where,
                  "module_fqns_per_model_part: stage " + to_string(stage) + " holds no unit", "");
}

StageSplit by_names(std::span<const NamedUnit> units, int ranks, const PipelineConfig& config,
                    StagesPerRank takes) {
  const auto& lists = *config.modules;
  const int stages = static_cast<int>(lists.size());
  if (stages == 0 || stages % ranks != 0)
    throw Error(ErrorCode::config, config.where,
                "Total stages " + to_string(stages) + " must be divisible by PP size " + to_string(ranks));
  const int per_rank = stages / ranks;
  if (per_rank < takes.least || per_rank > takes.most)
    throw Error(ErrorCode::config, config.where,
                "module_fqns_per_model_part gives " + to_string(per_rank) +
                    " stages per rank, and the schedule takes " + to_string(takes.least) +
                    (takes.most == takes.least  ? ""
                     : takes.most == kAnyNumber ? " or more"
                                                : " to " + to_string(takes.most)));
  const Names names(units, config.where);
  StageSplit split{{stages, per_rank}, std::vector<int>(units.size(), -1)};
  for (int stage = 0; stage < stages; ++stage)
    for (const std::string& name : lists[stage]) {
      const int unit = names.unit_of(name);
      if (unit < 0) continue;
      int& at = split.stage_of_unit[unit];
      if (at >= 0 && at != stage)
        throw Error(ErrorCode::config, config.where,
                    "module_fqns_per_model_part: the unit '" + units[unit].name + "' is on the stages " +
                        to_string(at) + " and " + to_string(stage),
                    "its modules go to one stage");
      at = stage;
    }
  refuse_gaps(units, split.stage_of_unit, stages, config.where);
  return split;
}

}  // namespace

StageCount count_stages(int64_t layers, int ranks, const PipelineConfig& config, StagesPerRank takes) {
  if (!config.layers_per_stage) {
    const int per_rank = std::min(takes.most, std::max(takes.least, 2));
    return {ranks * per_rank, per_rank};
  }
  Asked asked{layers, *config.layers_per_stage,
              layers / *config.layers_per_stage + (layers % *config.layers_per_stage != 0), ranks};
  const int64_t stages = rounded(asked, config);
  asked.stages = stages;
  refuse_by_schedule(asked, stages / ranks, config, takes);
  return {static_cast<int>(stages), static_cast<int>(stages / ranks)};
}

std::vector<int64_t> layers_of_stages(int64_t layers, int stages, const std::string& where) {
  if (stages < 1) throw Error(ErrorCode::config, where, "Number of stages must be at least 1");
  if (stages > layers)
    throw Error(ErrorCode::config, where,
                "Number of stages (" + to_string(stages) + ") cannot exceed number of layers (" +
                    to_string(layers) + ")",
                "use fewer pipeline ranks, or fewer stages on each");
  std::vector<int64_t> share;
  for (int stage = 0; stage < stages; ++stage)
    share.push_back(layers / stages + (stage < layers % stages ? 1 : 0));
  return share;
}

StageSplit split(std::span<const NamedUnit> units, int ranks, const PipelineConfig& config,
                 StagesPerRank takes) {
  return config.modules ? by_names(units, ranks, config, takes) : by_layers(units, ranks, config, takes);
}

}  // namespace heddle::schedule
