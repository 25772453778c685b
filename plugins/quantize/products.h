// Linear layers whose weights are packed in 4 bits.
#pragma once

#include <memory>
#include <unordered_map>

#include "heddle/nn/linear.h"
#include "packed.h"

namespace heddle::quantize {

// Layers with packed weights, and their formats.
struct Packed {
  std::unordered_map<const Linear*, Form> forms;
  at::ScalarType compute = at::kBFloat16;  // dtype of x and of the weight in products
};

// Returns the outputs of the layers for one input, in its dtype, as one node. A weight is unpacked for each
// product and freed after it, in the forward and again in the backward. Weights get no gradient, but biases
// may.
model::FewTensors linears(std::span<Linear* const> layers, const at::Tensor& x, const Packed& packed);

}  // namespace heddle::quantize
