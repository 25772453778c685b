// Gates of an attention's output.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>

#include "heddle/base/export.h"
#include "heddle/decoder/description.h"

namespace heddle::decoder {

// both [tokens, heads * 2 * width]: of each head the query, then the gate. Returns the queries and the gates,
// each a new tensor [tokens, heads * width].
HEDDLE_API std::pair<at::Tensor, at::Tensor> split_gate(const at::Tensor& both, int64_t width);

// y [tokens, heads * width] times a function of the gate [tokens, heads * width], or [tokens, heads] with one
// number for all of a head; one node, which keeps both.
HEDDLE_API at::Tensor gated_output(const at::Tensor& y, const at::Tensor& gate,
                                   OutputGate::Function function = OutputGate::Function::sigmoid);

}  // namespace heddle::decoder
