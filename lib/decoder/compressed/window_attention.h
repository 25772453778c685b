// Attention of a window and of compressed entries, in one softmax.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "heddle/base/export.h"
#include "lib/decoder/compressed/entry_table.h"

namespace heddle::decoder {

struct WindowInputs {
  at::Tensor q;        // [queries, heads * head_dim]
  at::Tensor kv;       // [tokens, head_dim]: one head of keys, which are values
  at::Tensor entries;  // [entries, head_dim], likewise; undefined: none
  at::Tensor sinks;    // [heads]: a score of each head without a value
  // int32 [queries, any], rows of entries that a query sees, of those that the table lets it see; one may
  // stand several times. Undefined: all of these.
  at::Tensor chosen;
};

// softmax over the tokens and entries that a query sees, and the sink, of q k / sqrt(head_dim): the weighted
// sum of the keys, [queries, heads * head_dim]. No scores are kept. One node, with edges to q, kv, entries
// and sinks.
HEDDLE_API at::Tensor window_attention(const WindowInputs& in, int64_t head_dim,
                                       const std::shared_ptr<const EntryTable>& table);

}  // namespace heddle::decoder
