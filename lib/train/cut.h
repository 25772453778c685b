// Cutting a batch into the microbatches of one call of the schedule.
#pragma once

#include <cstdint>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/model/batch.h"
#include "heddle/parallel/stages.h"

namespace heddle::train {

struct Cut {
  int microbatches = 1;
  int64_t rows = 0;                        // of each; 0: the batch is one microbatch
  std::vector<at::Tensor> documents = {};  // [microbatch], on the host; empty: the batch has none, or is one
};

// How many microbatches a batch is cut into. Throws like cut_of() for its rows.
HEDDLE_API int microbatches_of(const Batch& batch, const Pipeline& pipeline);

// Number of microbatches that are not padding alone.
HEDDLE_API int64_t microbatches_with_text(const Batch& batch, const Pipeline& pipeline);

// Throws Error{config} when the rows of the batch do not divide into microbatches, Error{input} if its
// documents or its padding are invalid. Reads their values: for a batch on the host.
HEDDLE_API Cut cut_of(const Batch& batch, const Pipeline& pipeline);

// Views of the batch's rows; of documents, a copy on the batch's device.
HEDDLE_API Batch microbatch_of(const Batch& batch, const Cut& cut, int index);

}  // namespace heddle::train
