// From a model's shape to its units.
#pragma once

#include <ATen/core/TensorBody.h>

#include "../config/model_config.h"
#include "heddle/model/unit.h"

namespace heddle::llama {

// Units "model.embed_tokens", "model.layers.N", and "lm_head" (the last norm, the head and the loss),
// parameters named as in Hugging Face checkpoints. On meta the parameters have no values; else they are drawn
// from the device's default generator. Tied embeddings: two slots named "model.embed_tokens.weight", one
// tensor.
Units make_units(const ModelConfig& config, const at::TensorOptions& options);

// Styles of the modules for the axis tp: of a dense model, also the plan "llama" of `tp_plan`, and of any
// model. Experts and their routers stay whole; so does OLMoE's attention, whose norms are of all heads at
// once.
const TensorPlan& tensor_plan();
TensorPlan tensor_plan(const ModelConfig& config);

}  // namespace heddle::llama
