// Top-k keys of a sparse attention: those with the largest scores per query (DeepSeek-V3.2 2025).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "heddle/base/export.h"

namespace heddle::decoder {

struct KeyScores {
  at::Tensor q;        // [queries, heads * dim]
  at::Tensor k;        // [batch * sequence, dim]: shared by all heads
  at::Tensor weights;  // [queries, heads]
};

// The score of a key is the sum over heads of weight * relu(q k / sqrt(dim)) / sqrt(heads), in fp32 (fp64 for
// fp64). Returns int32 [queries, top_k]: the positions in the batch, in ascending order, of the top_k keys of
// the query's document up to the query (documents: as in Batch); ties go to the first key. A query that sees
// fewer tokens gets all of them, with the best one repeated. Scores are held for one block of queries at a
// time. Below autograd.
// places: int64 [queries] on the host, the positions of the queries in the batch; undefined: all tokens in
// order.
HEDDLE_API at::Tensor choose_keys(const KeyScores& in, int64_t batch, int64_t sequence,
                                  const at::Tensor& documents, int64_t top_k, const at::Tensor& places = {});

// choose_keys() for keys that are not tokens: query i sees keys [seen[i][0], seen[i][1]), int32 [queries, 2],
// given on host and device. A query that sees no key gets an arbitrary one, to be ignored.
HEDDLE_API at::Tensor choose_within(const KeyScores& in, const at::Tensor& host, const at::Tensor& device,
                                    int64_t top_k);

// choose_keys() for one query that sees all keys, of which there are at least top_k: q and weights have one
// row. Returns int32 [1, top_k].
HEDDLE_API at::Tensor choose_keys_of_last(const KeyScores& in, int64_t top_k);

}  // namespace heddle::decoder
