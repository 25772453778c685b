// Cuts the samples of one step into this rank's microbatches.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "heddle/model/batch.h"
#include "lib/data/rows.h"
#include "lib/data/sample_order.h"

namespace heddle {

// How a global batch is split: in rounds of data_ranks * local_batch samples, of which each rank takes its
// part.
struct BatchSplit {
  int64_t local_batch = 1;  // samples of one microbatch
  int64_t data_ranks = 1;   // ranks that read different samples
  int64_t data_rank = 0;
};

// What a batch says of the step that it belongs to.
struct StepOfBatch {
  int64_t step = 0;                        // Batch::step
  std::optional<uint64_t> draw_seed = {};  // the run's; without it there are no Batch::draws
};

// The tokens that all data ranks compute in the batch [begin, end) of an order, with those that fill rows.
int64_t computed_tokens(const Rows& rows, const BatchSplit& split, const SampleOrder& order, int64_t begin,
                        int64_t end);

// A step's batch [begin, end) of an order. Every rank gets the same number of microbatches, of one shape
// unless rows are ragged;
// if the samples end before the last round is full, the free rows have labels that count nothing
// (Batch::kIgnore). Free rows, and what samples leave of theirs, are Batch::padding.
class Batches {
 public:
  Batches(const Rows& rows, BatchSplit split, int64_t vocabulary);

  // int64 [local_batch, L] tokens and labels, documents where the data set has them, padding where there is
  // any, and draws where there is a seed of them; they live until the next call.
  std::span<const Batch> read(const SampleOrder& order, int64_t begin, int64_t end,
                              const StepOfBatch& of = {});

 private:
  void cut(Batch& batch, const Batch& whole, const SampleOrder& order, int64_t place, int64_t end) const;
  void fill(Batch& batch, const SampleOrder& order, int64_t place, int64_t end);

  const Rows& rows_;
  BatchSplit split_;
  int64_t vocabulary_;
  std::vector<Batch> batches_;      // grown to the most microbatches seen, then used again
  std::vector<Batch> whole_;        // of ragged rows: the memory that batches_ are the beginning of
  std::vector<int32_t> documents_;  // of the batch that is filled
};

}  // namespace heddle
