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

// Split of a global batch: rounds of data_ranks * local_batch samples, of which each rank takes its part.
struct BatchSplit {
  int64_t local_batch = 1;  // samples per microbatch
  int64_t data_ranks = 1;   // ranks that read different samples
  int64_t data_rank = 0;
};

// Values that a batch carries about its step.
struct StepOfBatch {
  int64_t step = 0;                        // Batch::step
  std::optional<uint64_t> draw_seed = {};  // seed of the run; empty: no Batch::draws
};

// Returns the tokens that all data ranks compute in the batch [begin, end) of an order, including padding.
int64_t computed_tokens(const Rows& rows, const BatchSplit& split, const SampleOrder& order, int64_t begin,
                        int64_t end);

// The batch [begin, end) of an order. Every rank gets the same number of microbatches, with equal shapes
// unless rows are ragged. If the samples end before the last round is full, the empty rows have ignored
// labels (Batch::kIgnore). Empty rows and the ends of short samples are Batch::padding.
class Batches {
 public:
  Batches(const Rows& rows, BatchSplit split, int64_t vocabulary);

  // Returns batches of int64 [local_batch, L] tokens and labels, with documents if the data set has them,
  // padding if there is any, and draws if a seed is set. They are valid until the next call.
  std::span<const Batch> read(const SampleOrder& order, int64_t begin, int64_t end,
                              const StepOfBatch& step = {});

 private:
  void cut(Batch& batch, const Batch& whole, const SampleOrder& order, int64_t place, int64_t end) const;
  void fill(Batch& batch, const SampleOrder& order, int64_t place, int64_t end);

  const Rows& rows_;
  BatchSplit split_;
  int64_t vocabulary_;
  std::vector<Batch> batches_;      // grows to the maximum number of microbatches, then reused
  std::vector<Batch> whole_;        // ragged rows: memory of which batches_ are views
  std::vector<int32_t> documents_;  // of the batch that is being filled
};

}  // namespace heddle
