// Attention over a window and compressed entries, in one softmax.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "heddle/base/export.h"
#include "lib/decoder/compressed/entry_table.h"

namespace heddle::decoder {

struct WindowInputs {
  at::Tensor q;        // [queries, heads * head_dim]
  at::Tensor kv;       // [tokens, head_dim]: one head of keys, which are also values
  at::Tensor entries;  // [entries, head_dim], as kv; undefined: none
  at::Tensor sinks;    // [heads]: a score per head without a value
  // int32 [queries, any]: rows of the visible entries that a query attends to; repetitions are allowed.
  // Undefined: all visible entries.
  at::Tensor chosen;
};

// Softmax of q k / sqrt(head_dim) over the tokens and entries that a query sees and the sink; returns the
// weighted sum of the keys, [queries, heads * head_dim]. Scores are not kept. One autograd node, with edges
// to q, kv, entries and sinks.
HEDDLE_API at::Tensor window_attention(const WindowInputs& in, int64_t head_dim,
                                       const std::shared_ptr<const EntryTable>& table);

}  // namespace heddle::decoder
