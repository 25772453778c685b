// Cutting a batch into the microbatches of one call of the schedule.
#pragma once

#include <cstdint>

#include "heddle/model/batch.h"
#include "heddle/parallel/stages.h"

namespace heddle::train {

struct Cut {
  int microbatches = 1;
  int64_t rows = 0;  // of each; 0: the batch is one microbatch
};

// Throws Error{config} when the rows of the batch do not divide into microbatches.
Cut cut_of(const Batch& batch, const Pipeline& pipeline);

// Views of the batch's rows.
Batch microbatch_of(const Batch& batch, const Cut& cut, int index);

}  // namespace heddle::train
