// What a person is told before the first step: the model, the batch, the run, the memory.
#pragma once

#include <cstdint>
#include <string>

#include "trainer/loop/job.h"

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

std::string banner(const Job& job, const ModelSize& size);

}  // namespace heddle
