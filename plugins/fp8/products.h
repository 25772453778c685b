// Linear layers with products in fp8: one scale for each whole tensor, made anew at each use (torchao's
// Float8Linear with tensorwise scaling; Micikevicius et al. 2022).
#pragma once

#include <memory>

#include "heddle/nn/experts.h"
#include "heddle/nn/linear.h"

namespace heddle::fp8 {

struct How {
  bool emulate = false;  // numbers are rounded to fp8 and multiplied in their own dtype
  // These instead, with a layer as one expert; null: one scale for each tensor.
  std::shared_ptr<const model::ExpertProducts> products = nullptr;
};

// The outputs of the layers for one input. x and weights are rounded to e4m3, gradients of outputs to e5m2;
// each is divided by max(|x|) / the type's largest number before and multiplied after. Both gradients of a
// layer are such products too. Sums are in float32 or the products' dtype, biases are added after. Without
// `emulate` sizes must be multiples of 16.
model::FewTensors linears(std::span<Linear* const> layers, const at::Tensor& x, const How& how);

}  // namespace heddle::fp8
