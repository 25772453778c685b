// Linear layers whose inputs and weights are rounded as they will be after quantization.
#pragma once

#include <optional>

#include "fake_quantize.h"
#include "heddle/nn/linear.h"

namespace heddle::qat {

struct How {
  bool tokens = true;  // inputs are rounded too
  WeightForm weights;
  int64_t first_step = 0;  // before it layers compute as they are
};

// The outputs of the layers for one input, as one node. It keeps the input and the weights as they came and
// rounds them again in the backward. Gradients are those of the rounded numbers, as through() passes them on.
model::FewTensors linears(std::span<Linear* const> layers, const at::Tensor& x, const Batch& batch,
                          const How& how);

}  // namespace heddle::qat
