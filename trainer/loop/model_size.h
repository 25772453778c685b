// How much memory a model and its training take.
#pragma once

#include <cstdint>

#include "heddle/engine/engine.h"

namespace heddle {

// Sizes that are known once the model stands; of this rank, in bytes.
struct ModelSize {
  int64_t parameters = 0;    // of the whole model
  int64_t owned = 0;         // of this rank's shards
  int64_t gradients = 0;     // of the shards
  int64_t optimizer = 0;     // both moments, and master weights
  int64_t copies = 0;        // that checkpoint.is_async saves from
  bool rounded = false;      // the optimizer updates shards of 16 bits
  int64_t largest_unit = 0;  // the largest stretch of the model that is whole at one time
};

// Of the whole model: each parameter once, and its largest unit.
ModelSize size_of(const Units& units);

// Adds this rank's shards, their gradients and what the optimizer keeps of them.
void add_shards(ModelSize& size, Stages& stages, bool master_weights);

}  // namespace heddle
