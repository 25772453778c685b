// The borders between what every rank computes alike and what each computes a part of, as autograd nodes.
#pragma once

#include <ATen/core/Tensor.h>

#include "heddle/sdk.h"

namespace heddle::tensor {

// What the gradient of a gathered tensor is on each rank: its part of a sum, where ranks compute different
// things from it, or the whole, where they compute the same.
enum class Gradient { part, whole };

// Tensors are [tokens, width]; `total` is the size of the whole dim. After Megatron's regions (Shoeybi et al.
// 2019, Korthikanti et al. 2022); each is one node, and writes in place where nobody else reads.

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
// This rank's columns to all columns, with which every rank does the same. Backward: a slice.
at::Tensor gather_columns(at::Tensor own, int64_t total, Communicator& ranks);
// All columns to this rank's; every rank has the same. Backward: a gather.
at::Tensor slice_columns(at::Tensor whole, Communicator& ranks);

}  // namespace heddle::tensor
