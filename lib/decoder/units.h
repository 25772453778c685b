// Builds the units of a decoder from its description, and counts its operations.
#pragma once

#include <ATen/core/TensorBody.h>

#include <cstdint>

#include "heddle/decoder/family.h"
#include "heddle/model/unit.h"

namespace heddle::decoder {

// Makes the units "model.embed_tokens", "model.layers.N", and "lm_head" (the last norm, the head and the
// loss). On meta, parameters have no values; else they are initialized with the device's default generator.
// Tied embeddings are two slots named "model.embed_tokens.weight" with one tensor.
Units make_units(const Model& model, const at::TensorOptions& options);

// Returns the number of multi-token prediction heads with their own layers.
inline size_t heads_of(const MtpHeads& mtp) {
  return mtp.tokens > 0 && mtp.repeated ? 1 : static_cast<size_t>(mtp.tokens);
}

// Value of ModelSpec::flops_per_token by AutoModel's formula: six operations per weight of a projection (2
// forward, 4 backward), for experts those of the selected experts. Attention covers the causal half of the
// positions, or those of the layer's window or of its indexer's choice; an indexer has a forward only. Each
// of the mtp tokens adds the head's layers and its logits. Norms, rotary embedding and embedding are not
// counted.
double operations_per_token(const Model& model, int64_t sequence);

}  // namespace heddle::decoder
