// From the description of a decoder to its units and its operations.
#pragma once

#include <ATen/core/TensorBody.h>

#include <cstdint>

#include "heddle/decoder/family.h"
#include "heddle/model/unit.h"

namespace heddle::decoder {

// Units "model.embed_tokens", "model.layers.N", and "lm_head" (the last norm, the head and the loss). On meta
// the parameters have no values; else they are drawn from the device's default generator. Tied embeddings:
// two slots named "model.embed_tokens.weight", one tensor.
Units make_units(const Model& model, const at::TensorOptions& options);

// Multi-token prediction heads with layers of their own.
inline size_t heads_of(const MtpHeads& mtp) {
  return mtp.tokens > 0 && mtp.repeated ? 1 : static_cast<size_t>(mtp.tokens);
}

// As ModelSpec::flops_per_token. AutoModel's formula: six operations for each weight of a product (2 forward,
// 4 backward), of experts those that a token meets, and attention over the half of the positions that causal
// masking leaves, or those of the layer's window or its indexer's choice; an indexer has a forward alone; of
// mtp tokens each head's layers and its logits. Norms, the rotary embedding and the embedding are not
// counted.
double operations_per_token(const Model& model, int64_t sequence);

}  // namespace heddle::decoder
