// From tokens to the entries of a compressed attention.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "heddle/base/export.h"
#include "lib/decoder/compressed/entry_table.h"

namespace heddle::decoder {

// kv and gate [tokens, width] of whole rows, bias [rate, width]: an entry is the sum over its tokens j of
// softmax over j of (gate + bias[j]) * kv, number by number: [entries, width].
// overlap: [entries, width / 2], of twice as many tokens: the first half of kv, gate and bias of the tokens
// of the entry before, if the document has one, and the second half of its own. Computed in fp32 (fp64 for
// fp64) and rounded once. One node, with edges to all three.
HEDDLE_API at::Tensor pooled_entries(const at::Tensor& kv, const at::Tensor& gate, const at::Tensor& bias,
                                     const std::shared_ptr<const EntryTable>& table, bool overlap);

}  // namespace heddle::decoder
