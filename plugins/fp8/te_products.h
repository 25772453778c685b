// Products of numbers that are rounded to fp8 as the recipes of Transformer Engine round them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "heddle/nn/experts.h"

namespace heddle::fp8 {

enum class Recipe {
  current,  // Float8CurrentScaling: one scale a tensor, of each expert; e4m3, gradients of outputs e5m2
  block,    // Float8BlockScaling: 1 x 128 numbers of inputs and gradients, 128 x 128 of weights; e4m3
  mxfp8     // MXFP8BlockScaling: 32 numbers along the sum of the product; e4m3
};

// x [.., rows, columns] on the grid of e4m3 with one scale for each block of height x width, the last blocks
// being smaller: 448 / max(|x|), down to a power of two. In x's dtype, which holds every result exactly.
at::Tensor rounded_in_blocks(const at::Tensor& x, int64_t height, int64_t width);

// Rounds both operands of each product and multiplies them in their own dtype, which sums as it does for
// other numbers. With `current` the result is divided by the scales after.
std::shared_ptr<const model::ExpertProducts> te_products(Recipe recipe);

}  // namespace heddle::fp8
