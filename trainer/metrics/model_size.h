// How much memory a model and its training take.
#pragma once

#include <cstdint>
#include <vector>

#include "heddle/engine/engine.h"
#include "trainer/metrics/expert_size.h"

namespace heddle {

// The slots of each unit, taken while the whole model is there. Those of this rank's stages stay valid.
using UnitSlots = std::vector<std::vector<ParameterSlot>>;
UnitSlots slots_of(const Units& units);

// Sizes that are known once the model stands; of this rank, in bytes.
struct ModelSize {
  int64_t parameters = 0;  // of the whole model, how many
  int64_t frozen = 0;      // of these, by freeze_config
  ExpertSize experts;
  int64_t held = 0;          // of parameters between steps: shards, and what the model computes with
  int64_t gradients = 0;     // whole where the parameter stays whole, else of the shards
  int64_t optimizer = 0;     // both moments, and master weights
  int64_t copies = 0;        // that checkpoint.is_async saves from
  bool rounded = false;      // the optimizer updates shards of 16 bits
  int64_t largest_unit = 0;  // of those that are gathered and freed; 0: none is
};

// Elements of the whole model's parameters, a tied one once.
struct ParameterCount {
  int64_t all = 0, frozen = 0;
};
ParameterCount count_parameters(const UnitSlots& slots);

// Reads what the strategy made of this rank's parameters from their storage.
ModelSize size_of(const UnitSlots& slots, Stages& stages, bool master_weights);
// What a checkpoint of the whole model takes on the disk, and the model alone, in bytes.
struct SavedBytes {
  int64_t checkpoint = 0, model = 0;
};
SavedBytes saved_bytes(const Units& units, bool master_weights);

}  // namespace heddle
