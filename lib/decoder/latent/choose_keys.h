// The keys that a sparse attention sees: of each query those with the largest scores (DeepSeek-V3.2 2025).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "heddle/base/export.h"

namespace heddle::decoder {

struct KeyScores {
  at::Tensor q;        // [queries, heads * dim]
  at::Tensor k;        // [batch * sequence, dim]: one of all heads
  at::Tensor weights;  // [queries, heads]
};

// A key's score is sum over heads of weight * relu(q k / sqrt(dim)) / sqrt(heads), in fp32 (fp64 for fp64).
// Returns int32 [queries, top_k]: of the tokens of its document up to itself (documents: as in
// Batch) the top_k of the largest scores, by their places in the batch and in their order; of equal scores
// the first. A query with fewer tokens has all of them, and the best one several times. Scores are held for a
// block of queries at a time. Below autograd.
// places: int64 [queries], on the host: which tokens of the batch the queries are; undefined: all, in order.
HEDDLE_API at::Tensor choose_keys(const KeyScores& in, int64_t batch, int64_t sequence,
                                  const at::Tensor& documents, int64_t top_k, const at::Tensor& places = {});

// The same of keys that are no tokens: query i sees keys [seen[i][0], seen[i][1]), int32 [queries, 2], on the
// host and on the device. A query that sees none gets some key, which stands for none.
HEDDLE_API at::Tensor choose_within(const KeyScores& in, const at::Tensor& host, const at::Tensor& device,
                                    int64_t top_k);

// The same of one query, which sees all keys: q and weights have one row. Returns int32 [1, top_k]; there are
// at least so many keys.
HEDDLE_API at::Tensor choose_keys_of_last(const KeyScores& in, int64_t top_k);

}  // namespace heddle::decoder
