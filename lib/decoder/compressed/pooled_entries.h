// Pools tokens into the entries of a compressed attention.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "heddle/base/export.h"
#include "lib/decoder/compressed/entry_table.h"

namespace heddle::decoder {

// kv and gate [tokens, width] of whole rows, bias [rate, width]. An entry [width] is, element by element, the
// sum over its tokens j of softmax over j of (gate + bias[j]) * kv; returns [entries, width].
// overlap: returns [entries, width / 2] from twice as many tokens: the first half of kv, gate and bias for
// the tokens of the previous entry of the document, if any, and the second half for the entry's own. Computed
// in fp32 (fp64 for fp64) and rounded once. One autograd node, with edges to all three.
HEDDLE_API at::Tensor pooled_entries(const at::Tensor& kv, const at::Tensor& gate, const at::Tensor& bias,
                                     const std::shared_ptr<const EntryTable>& table, bool overlap);

}  // namespace heddle::decoder
