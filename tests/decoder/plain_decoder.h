// Reference decoder computed from its description by plain ATen operators, without heddle's layers.
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <string>

#include "heddle/decoder/description.h"

namespace heddle::tests {

using Parameters = std::map<std::string, at::Tensor>;

// Returns logits [rows, sequence, vocabulary] for tokens [rows, sequence], where each row is one document.
// Supports grouped-query attention and plain or gated MLPs, not experts or latent attention. draws: dropout
// draws per token, as in Batch.
at::Tensor plain_logits(const decoder::Model& model, const Parameters& parameters, const at::Tensor& tokens,
                        const at::Tensor& draws = {});

}  // namespace heddle::tests
