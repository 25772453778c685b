// The units of GPT-2 (Radford et al. 2019).
#pragma once

#include "config.h"
#include "heddle/sdk.h"

namespace gpt2 {

// Creates the units "transformer.embeddings", "transformer.h.N", and "lm_head" (the final norm, the head and
// the loss). Parameters are named as in Hugging Face checkpoints. If tied, two slots are named
// "transformer.wte.weight".
heddle::Units make_units(const Config& config, const at::TensorOptions& options);

}  // namespace gpt2
