// Collectives on plain tensors, below autograd, for the regions and the overlapped products.
#pragma once

#include <ATen/core/Tensor.h>

#include "heddle/sdk.h"

namespace heddle::tensor {

// The tensor in memory that nothing else reads, so that a collective may write into it: a copy only if the
// caller's is shared or has gaps.
at::Tensor exclusive(at::Tensor tensor);

// In place; `tensor` is exclusive.
at::Tensor sum_all(at::Tensor tensor, Communicator& ranks);

// own: this rank's rows of `total`. Returns all rows.
at::Tensor all_rows(const at::Tensor& own, int64_t total, Communicator& ranks);
// whole: all rows, this rank's summand. Returns this rank's rows of the sum.
at::Tensor sum_own_rows(const at::Tensor& whole, Communicator& ranks);
at::Tensor own_rows(const at::Tensor& whole, Communicator& ranks);

// own: this rank's columns of `total`, dealt by part_of. Returns all columns.
at::Tensor all_columns(const at::Tensor& own, int64_t total, Communicator& ranks);
at::Tensor own_columns(const at::Tensor& whole, Communicator& ranks);

// `rows` rows, and zeros up to a multiple of the ranks: the input of a reduce-scatter.
at::Tensor padded(const at::Tensor& whole, Communicator& ranks);

}  // namespace heddle::tensor
