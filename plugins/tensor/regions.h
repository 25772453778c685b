// Borders between replicated and split computation, as autograd nodes.
#pragma once

#include <ATen/core/Tensor.h>

#include "heddle/sdk.h"

namespace heddle::tensor {

// The gradient of a gathered tensor on each rank: a part of a sum if the ranks compute different values from
// it, or the whole gradient if they compute the same.
enum class Gradient { part, whole };

// Tensors are [tokens, width]; `total` is the size of the whole dim. Modeled on Megatron's regions (Shoeybi
// et al. 2019, Korthikanti et al. 2022). Each region is one node, and writes in place if nothing else reads
// its input.

// Returns x. Backward: sums the gradient over the ranks.
at::Tensor share(at::Tensor x, Communicator& ranks);
// Sums over the ranks. Backward: passes the gradient to every rank.
at::Tensor sum(at::Tensor part, Communicator& ranks);
// Gathers all rows from this rank's rows. Backward: this rank's rows of the gradient, which is summed first
// if it is a part.
at::Tensor gather_rows(at::Tensor own, int64_t total, Communicator& ranks, Gradient gradient);
// Sums over the ranks and returns this rank's rows. Backward: a gather.
at::Tensor sum_to_rows(at::Tensor part, Communicator& ranks);
// Returns this rank's rows of a tensor that all ranks hold. Backward: a gather.
at::Tensor slice_rows(at::Tensor whole, Communicator& ranks);
// Gathers all columns from this rank's columns. All ranks compute the same with them. Backward: a slice.
at::Tensor gather_columns(at::Tensor own, int64_t total, Communicator& ranks);
// Returns this rank's columns of a tensor that all ranks hold. Backward: a gather.
at::Tensor slice_columns(at::Tensor whole, Communicator& ranks);

}  // namespace heddle::tensor
