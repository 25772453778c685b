// Linear layers with products in fp8. Each tensor has one scale, which is computed at each use (torchao's
// Float8Linear with tensorwise scaling; Micikevicius et al. 2022).
#pragma once

#include <memory>

#include "heddle/nn/experts.h"
#include "heddle/nn/linear.h"

namespace heddle::fp8 {

struct How {
  bool emulate = false;  // round to fp8, but multiply in the original dtype
  // Products of a recipe of te_fp8, which treats a layer as one expert. null: one scale per tensor.
  std::shared_ptr<const model::ExpertProducts> products = nullptr;
};

// Returns the outputs of the layers for one input. x and the weights are rounded to e4m3, output gradients to
// e5m2. Each operand is divided by max(|x|) / (largest value of the type) before the product, and the result
// is multiplied by it. Both gradients of a layer are such products too. Products accumulate in float32, or in
// their dtype when emulated. Biases are added afterwards. Without `emulate` sizes must be multiples of 16.
model::FewTensors linears(std::span<Linear* const> layers, const at::Tensor& x, const How& how);

}  // namespace heddle::fp8
