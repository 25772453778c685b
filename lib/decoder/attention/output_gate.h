// Gates of an attention's output.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>

#include "heddle/base/export.h"
#include "heddle/decoder/description.h"

namespace heddle::decoder {

// Splits both [tokens, heads * 2 * width], which has the query and then the gate of each head. Returns
// queries and gates as new tensors [tokens, heads * width].
HEDDLE_API std::pair<at::Tensor, at::Tensor> split_gate(const at::Tensor& both, int64_t width);

// Multiplies y [tokens, heads * width] by a function of the gate [tokens, heads * width], or [tokens, heads]
// for one value per head. One autograd node, which keeps both inputs.
HEDDLE_API at::Tensor gated_output(const at::Tensor& y, const at::Tensor& gate,
                                   OutputGate::Function function = OutputGate::Function::sigmoid);

}  // namespace heddle::decoder
