// How much memory a model and its training take.
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
  std::string parameter;  // one of its parameters, to find the layer in a stage
  int64_t experts = 0, top_k = 0;
  int64_t parameters = 0;  // of all its experts
};

// The whole model, as it is before the strategy takes it. Slots and modules of this rank's stages stay valid.
struct WholeModel {
  std::vector<std::string> units;                 // their names
  std::vector<std::vector<ParameterSlot>> slots;  // of each unit
  std::vector<ExpertLayer> expert_layers;
  int64_t parameters = 0, frozen = 0;  // elements, a tied parameter once
  bool draws = false;                  // a module has ModuleTraits::draws
};
// `packed`: how many numbers parameters of another form stand for (PreparedModel::packed()). `others`:
// parameters of other models, such as a teacher, which are not counted (PreparedModel::of_other_models()).
WholeModel whole_model(const Units& units, const std::map<std::string, int64_t>& packed = {},
                       const std::set<std::string>& others = {});

struct ExpertSize {
  int64_t layers = 0, experts = 0;    // of the whole model; experts summed over layers
  int64_t inactive = 0;               // parameters of experts that a token does not meet, of all layers
  int64_t held_layers = 0, held = 0;  // in this rank's stages
  int64_t parts = 1;                  // each of these is a part of one; 1: it is whole
};

// Sizes that are known once the model stands; of this rank, in bytes. One that no int64_t holds is the
// largest that does.
struct ModelSize {
  int64_t parameters = 0;  // of the whole model, how many
  int64_t frozen = 0;      // of these, by transforms
  ExpertSize experts;
  int64_t held = 0;          // of parameters between steps: shards, and what the model computes with
  int64_t gradients = 0;     // whole where the parameter stays whole, else of the shards
  int64_t optimizer = 0;     // its state, master weights, copies for post-validation
  int64_t copies = 0;        // that checkpoint.is_async saves from
  bool rounded = false;      // the optimizer updates shards of 16 bits
  int64_t largest_unit = 0;  // of those that are gathered and freed; 0: none is
};

// Reads what the strategy made of this rank's parameters from their storage. `states`: the optimizer's, with
// master copies. `max_norm`: as in StepConfig.
ModelSize size_of(const WholeModel& model, Stages& stages, std::span<const OptimizerState> states,
                  std::optional<double> max_norm);
// The state of an optimizer that starts with all shards of the stages; on meta it takes no memory.
std::vector<OptimizerState> states_of(Stages& stages, const DeviceMesh& mesh, const StepConfig& config,
                                      IOptimizer& optimizer);

// "12 in 3 layers; a token meets 1.20 M of 2.40 M parameters; a rank computes 6 in 3"; empty without experts.
std::string experts_text(const ModelSize& size);

// What a checkpoint of the whole model takes on the disk, and the model alone, in bytes.
struct SavedBytes {
  int64_t checkpoint = 0, model = 0;
};
SavedBytes saved_bytes(const Units& units, const std::set<std::string>& left_out, const StepConfig& config,
                       IOptimizer& optimizer);

}  // namespace heddle
