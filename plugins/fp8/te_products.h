// Products of operands that are rounded to fp8 by the recipes of Transformer Engine.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "heddle/nn/experts.h"

namespace heddle::fp8 {

enum class Recipe {
  current,  // Float8CurrentScaling: one scale per tensor and expert; e4m3, output gradients e5m2
  block,    // Float8BlockScaling: blocks of 1 x 128 for inputs and gradients, 128 x 128 for weights; e4m3
  mxfp8     // MXFP8BlockScaling: blocks of 32 along the inner dim of the product; e4m3
};

// Rounds x [.., rows, columns] to the grid of e4m3, with one scale per block of height x width: 448 /
// max(|x|), rounded down to a power of two. The last blocks may be smaller. The result has x's dtype, which
// represents it exactly.
at::Tensor rounded_in_blocks(const at::Tensor& x, int64_t height, int64_t width);

// Rounds both operands of each product and multiplies them in their own dtype, with the accumulation of that
// dtype. With `current` the result is divided by the scales afterwards.
std::shared_ptr<const model::ExpertProducts> te_products(Recipe recipe);

}  // namespace heddle::fp8
