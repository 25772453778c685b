// The gate of an attention's output (Qwen3-Next).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>

#include "heddle/base/export.h"

namespace heddle::decoder {

// both [tokens, heads * 2 * width]: of each head the query, then the gate. Returns the queries and the gates,
// each a new tensor [tokens, heads * width].
HEDDLE_API std::pair<at::Tensor, at::Tensor> split_gate(const at::Tensor& both, int64_t width);

// y * sigmoid(gate), of equal shapes; one node, which keeps both.
HEDDLE_API at::Tensor gated_output(const at::Tensor& y, const at::Tensor& gate);

}  // namespace heddle::decoder
