// Splitting a model into stages: how many there are, and which units each holds. Names in, integers out.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "heddle/schedule/schedule.h"

namespace heddle::schedule {

struct StageCount {
  int stages = 1, per_rank = 1;
};

// The number of stages of the whole pipeline, by layers_per_stage and its rounding, or from what the schedule
// takes: one stage on a rank, or two where it takes several (NeMo AutoModel's calculate_virtual_stages; but
// rounding down never gives none). Throws Error{config} with AutoModel's texts.
HEDDLE_API StageCount count_stages(int64_t layers, int ranks, const PipelineConfig& config,
                                   StagesPerRank takes);

// Layers of each stage, [stage]: equal to within one, the first stages hold one more. 10 in 3: 4, 3, 3.
HEDDLE_API std::vector<int64_t> layers_of_stages(int64_t layers, int stages, const std::string& where);

// One unit of a model, in execution order.
struct NamedUnit {
  std::string name;                     // "layers.3"
  std::vector<std::string> parameters;  // "layers.3.mlp.up.weight", ...
};

struct StageSplit {
  StageCount count;
  std::vector<int> stage_of_unit;  // [unit], ascending: a stage is a range of units
};

// Layers are the units whose name ends in a number (every unit, where none does); units before the first
// layer go to the first stage, units after the last one to the last stage. `config.modules` names the modules
// of each stage instead: every unit once, in the order of the model. Throws Error{config}.
HEDDLE_API StageSplit split(std::span<const NamedUnit> units, int ranks, const PipelineConfig& config,
                            StagesPerRank takes);

}  // namespace heddle::schedule
