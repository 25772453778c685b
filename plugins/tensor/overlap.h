// Products overlapped with a gather or a sum over ranks, in forward and backward.
#pragma once

#include <span>

#include "heddle/nn/linear.h"
#include "heddle/sdk.h"

namespace heddle::tensor {

// Multiplies the weights of `layers` with all token rows, as one node. x: this rank's token rows. The rows of
// each rank are sent separately and multiplied as they arrive, beginning with this rank's own. In the
// backward, dX is computed and summed in pieces, and the sums overlap the next piece and dW (modeled on
// PyTorch's asynchronous tensor parallelism).
model::FewTensors gathered_products(std::span<Linear* const> layers, const at::Tensor& x, const Batch& batch,
                                    Communicator& ranks);

// Returns this rank's rows of the sum over ranks of x W^T, without bias. x: all token rows, with this rank's
// columns. The mirror image of gathered_products().
at::Tensor scattered_product(const Linear& layer, const at::Tensor& x, const Batch& batch,
                             Communicator& ranks);

}  // namespace heddle::tensor
