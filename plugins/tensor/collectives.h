// Collectives on plain tensors for the regions and the overlapped products. Not recorded by autograd.
#pragma once

#include <ATen/core/Tensor.h>

#include "heddle/sdk.h"

namespace heddle::tensor {

// Returns a tensor that a collective may write into, because nothing else reads its memory. Copies only if
// the caller's tensor is shared or has gaps.
at::Tensor exclusive(at::Tensor tensor);

// Sums in place. `tensor` is exclusive.
at::Tensor sum_all(at::Tensor tensor, Communicator& ranks);

// own: this rank's rows of `total`. Returns all rows.
at::Tensor all_rows(const at::Tensor& own, int64_t total, Communicator& ranks);
// whole: this rank's summand of all rows. Returns this rank's rows of the sum.
at::Tensor sum_own_rows(const at::Tensor& whole, Communicator& ranks);
at::Tensor own_rows(const at::Tensor& whole, Communicator& ranks);

// own: this rank's columns of `total`, split by part_of(). Returns all columns.
at::Tensor all_columns(const at::Tensor& own, int64_t total, Communicator& ranks);
at::Tensor own_columns(const at::Tensor& whole, Communicator& ranks);

// Pads rows with zeros to a multiple of the ranks, for the input of a reduce-scatter.
at::Tensor padded(const at::Tensor& whole, Communicator& ranks);

}  // namespace heddle::tensor
