// A decoder computed from its description by plain operators of ATen, without heddle's layers.
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <string>

#include "heddle/decoder/description.h"

namespace heddle::tests {

using Parameters = std::map<std::string, at::Tensor>;

// tokens [rows, sequence]; each row is a document. Returns logits [rows, sequence, vocabulary]. Grouped
// attention, gated and plain MLPs; no experts and no latents. draws: of the tokens, as Batch has them; for
// models with dropout.
at::Tensor plain_logits(const decoder::Model& model, const Parameters& parameters, const at::Tensor& tokens,
                        const at::Tensor& draws = {});

}  // namespace heddle::tests
