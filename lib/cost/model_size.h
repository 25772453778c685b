// Memory of a model and its training.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "heddle/engine/engine.h"

namespace heddle {

class Experts;

std::string count_text(int64_t count);  // "1.24 M"

// A layer with experts.
struct ExpertLayer {
  const Experts* module = nullptr;
  std::string parameter;  // a parameter that identifies the layer in a stage
  int64_t experts = 0, top_k = 0;
  int64_t parameters = 0;  // of all its experts
};

// The whole model before the strategy takes it. Slots and modules of this rank's stages stay valid.
struct WholeModel {
  std::vector<std::string> units;                 // names of the units
  std::vector<std::vector<ParameterSlot>> slots;  // per unit
  std::vector<ExpertLayer> expert_layers;
  int64_t parameters = 0, frozen = 0;  // elements; a tied parameter counts once
  bool draws = false;                  // a module has ModuleTraits::draws
};
// `packed`: number of weights that each packed parameter stands for (PreparedModel::packed()).
// `other_models`: parameters of other models, such as a teacher, which are not counted
// (PreparedModel::of_other_models()).
WholeModel whole_model(const Units& units, const std::map<std::string, int64_t>& packed = {},
                       const std::set<std::string>& other_models = {});

struct ExpertSize {
  int64_t layers = 0, experts = 0;  // of the whole model; experts summed over layers
  int64_t inactive = 0;  // parameters of experts that are not selected for a token, over all layers
  int64_t held_layers = 0, held = 0;  // in this rank's stages
  int64_t parts = 1;                  // number of parts that each expert is split into; 1: whole
};

// Sizes of this rank in bytes, known once the model is built. Values beyond int64_t are clamped.
struct ModelSize {
  int64_t parameters = 0;  // number of parameters of the whole model
  int64_t frozen = 0;      // parameters frozen by transforms
  ExpertSize experts;
  int64_t held = 0;          // parameters between steps: shards, and whole parameters kept for compute
  int64_t gradients = 0;     // of whole parameters if they are not sharded, else of the shards
  int64_t optimizer = 0;     // optimizer state, master weights, copies for post-validation
  int64_t copies = 0;        // copies that checkpoint.is_async saves from
  bool rounded = false;      // the optimizer updates 16-bit shards
  int64_t largest_unit = 0;  // of units that are gathered and freed; 0: none
};

// Reads the sizes from the storage of this rank's parameters as the strategy made it. `states`: optimizer
// state with master copies. `max_norm`: as in StepConfig.
ModelSize size_of(const WholeModel& model, Stages& stages, std::span<const OptimizerState> states,
                  std::optional<double> max_norm);
// Returns the initial optimizer state of all shards of the stages; on meta it takes no memory.
std::vector<OptimizerState> states_of(Stages& stages, const DeviceMesh& mesh, const StepConfig& config,
                                      IOptimizer& optimizer);

// Returns "12 in 3 layers; a token uses 1.20 M of 2.40 M parameters; a rank has 6 in 3"; empty without
// experts.
std::string experts_text(const ModelSize& size);

// Bytes on disk of a checkpoint of the whole model, and of the model alone.
struct SavedBytes {
  int64_t checkpoint = 0, model = 0;
};
SavedBytes saved_bytes(const Units& units, const std::set<std::string>& left_out, const StepConfig& config,
                       IOptimizer& optimizer);

}  // namespace heddle
