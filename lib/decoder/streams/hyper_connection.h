// Hyper-connections: several residual streams of each token, mixed by weights that follow from the token.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "heddle/base/export.h"
#include "heddle/decoder/description.h"

namespace heddle::decoder {

// The weights of each token, [tokens, weights], fp32 (fp64 for fp64), from x [tokens, streams * width], which
// is normalised over its last dim. With n streams:
//   n of them          pre: sigmoid + eps. The last ones of a model
//   n * (2 + n)        pre, post: 2 * sigmoid, and the matrix [n from, n to] of a softmax over `to`, which is
//                      made doubly stochastic
// mix [weights, streams * width], base [weights], scale [1], or [3] for pre, post and the matrix. One
// autograd node with edges to all four; it computes the weights again in the backward.
HEDDLE_API at::Tensor hyper_weights(const at::Tensor& x, const at::Tensor& mix, const at::Tensor& base,
                                    const at::Tensor& scale, const HyperConnections& form);

// sum over streams of pre * x: [tokens, width], in the dtype of x. Edges: x, the weights.
HEDDLE_API at::Tensor hyper_collapsed(const at::Tensor& x, const at::Tensor& weights, int64_t streams);

// Stream k is post[k] * y + sum over j of matrix[j, k] * x[j]: as x. y [tokens, width]. Edges: x, y, weights.
HEDDLE_API at::Tensor hyper_expanded(const at::Tensor& x, const at::Tensor& y, const at::Tensor& weights,
                                     int64_t streams);

}  // namespace heddle::decoder
