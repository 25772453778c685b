// The units of GPT-2 (Radford et al. 2019).
#pragma once

#include "config.h"
#include "heddle/sdk.h"

namespace gpt2 {

// Units "transformer.embeddings", "transformer.h.N", and "lm_head" (the last norm, the head and the loss),
// parameters named as in Hugging Face checkpoints. Tied: two slots named "transformer.wte.weight".
heddle::Units make_units(const Config& config, const at::TensorOptions& options);

}  // namespace gpt2
