// Linear layers with fake quantization of inputs and weights.
#pragma once

#include <optional>

#include "fake_quantize.h"
#include "heddle/nn/linear.h"

namespace heddle::qat {

struct How {
  bool tokens = true;  // quantize inputs too
  WeightForm weights;
  int64_t first_step = 0;  // layers are not quantized before this step
};

// Returns the outputs of the layers for one input, as one node. It saves the original input and weights, and
// quantizes them again in the backward. Gradients pass as through() defines.
model::FewTensors linears(std::span<Linear* const> layers, const at::Tensor& x, const Batch& batch,
                          const How& how);

}  // namespace heddle::qat
