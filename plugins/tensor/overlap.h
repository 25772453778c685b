// Products overlapped with a gather or a sum over ranks, in both directions.
#pragma once

#include <span>

#include "heddle/nn/linear.h"
#include "heddle/sdk.h"

namespace heddle::tensor {

// x: this rank's token rows. Each layer's product with all rows, as one node: every rank's rows are sent
// separately and multiplied as they arrive, the own ones first. Backward: dX is made and summed piece by
// piece, the sums overlapping the next piece and dW (after PyTorch's asynchronous tensor parallelism).
model::FewTensors gathered_products(std::span<Linear* const> layers, const at::Tensor& x, const Batch& batch,
                                    Communicator& ranks);

// x: all token rows of this rank's columns. This rank's rows of the sum over ranks of x W^T, without bias.
// The mirror of the above.
at::Tensor scattered_product(const Linear& layer, const at::Tensor& x, const Batch& batch,
                             Communicator& ranks);

}  // namespace heddle::tensor
