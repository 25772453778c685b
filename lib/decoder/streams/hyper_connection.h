// Hyper-connections: several residual streams per token, mixed by token-dependent weights.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "heddle/base/export.h"
#include "heddle/decoder/description.h"

namespace heddle::decoder {

// Returns the weights per token, [tokens, weights], fp32 (fp64 for fp64), from x [tokens, streams * width]
// normalized over its last dim. With n streams:
//   n weights          pre: sigmoid + eps. Used at the end of a model
//   n * (2 + n)        pre, post: 2 * sigmoid, and the matrix [n from, n to], a softmax over `to` that is
//                      made doubly stochastic
// mix [weights, streams * width], base [weights], scale [1], or [3] for pre, post and the matrix. One
// autograd node with edges to all four; the backward recomputes the weights.
HEDDLE_API at::Tensor hyper_weights(const at::Tensor& x, const at::Tensor& mix, const at::Tensor& base,
                                    const at::Tensor& scale, const HyperConnections& form);

// Returns the sum over streams of pre * x: [tokens, width], in the dtype of x. Edges: x, weights.
HEDDLE_API at::Tensor hyper_collapsed(const at::Tensor& x, const at::Tensor& weights, int64_t streams);

// Returns stream k as post[k] * y + sum over j of matrix[j, k] * x[j], in the shape of x. y [tokens, width].
// Edges: x, y, weights.
HEDDLE_API at::Tensor hyper_expanded(const at::Tensor& x, const at::Tensor& y, const at::Tensor& weights,
                                     int64_t streams);

}  // namespace heddle::decoder
