// A number of each expert that multiplies the weights of its tokens.
#pragma once

#include <ATen/core/Tensor.h>

namespace heddle::model {

// weights [tokens, k] times scale[experts], in the dtype of the weights. experts int64 [tokens, k], distinct
// for one token; -1: none, whose weight is multiplied by the first expert's number. scale [number of
// experts]. Gradients go to the weights and to the scale; a choice of -1 adds nothing to the scale's.
at::Tensor scaled_by_expert(const at::Tensor& weights, const at::Tensor& experts, const at::Tensor& scale);

}  // namespace heddle::model
