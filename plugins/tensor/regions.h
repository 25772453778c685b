// The borders between replicated and split computation, as autograd nodes.
#pragma once

#include <ATen/core/Tensor.h>

#include "heddle/sdk.h"

namespace heddle::tensor {

// The gradient of a gathered tensor on each rank: a part of a sum if the ranks compute different things from
// it, or the whole if they compute the same.
enum class Gradient { part, whole };

// Tensors are [tokens, width]; `total` is the size of the whole dim. After Megatron's regions (Shoeybi et al.
// 2019, Korthikanti et al. 2022); each is one node, and writes in place if nothing else reads.

// The same tensor; its gradient is summed over the ranks.
at::Tensor share(at::Tensor x, Communicator& ranks);
// The sum over the ranks; its gradient goes to each.
at::Tensor sum(at::Tensor part, Communicator& ranks);
// This rank's rows to all rows. Backward: this rank's rows of the gradient, summed first if it is a part.
at::Tensor gather_rows(at::Tensor own, int64_t total, Communicator& ranks, Gradient gradient);
// The sum over the ranks, of which each gets its rows. Backward: a gather.
at::Tensor sum_to_rows(at::Tensor part, Communicator& ranks);
// All rows to this rank's; every rank has the same. Backward: a gather.
at::Tensor slice_rows(at::Tensor whole, Communicator& ranks);
// This rank's columns to all columns, with which every rank computes the same. Backward: a slice.
at::Tensor gather_columns(at::Tensor own, int64_t total, Communicator& ranks);
// All columns to this rank's; every rank has the same. Backward: a gather.
at::Tensor slice_columns(at::Tensor whole, Communicator& ranks);

}  // namespace heddle::tensor
