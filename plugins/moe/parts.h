// Split of tokens that all ranks of tp hold: each rank sends a part of them to the experts.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

#include "heddle/mesh/communicator.h"

namespace heddle::moe {

// Returns this rank's rows of x [rows, ...] and weights [rows, k]: ceil(rows / ranks) rows, fewer on the last
// ranks. The backward gathers, so that every rank has the gradient of all rows.
std::pair<at::Tensor, at::Tensor> own_part(const at::Tensor& x, const at::Tensor& weights,
                                           Communicator& ranks);
at::Tensor own_part(const at::Tensor& plain, Communicator& ranks);  // not recorded by autograd

// Gathers the rows of all ranks, `rows` in total. The backward returns this rank's rows; the gradient is
// equal on all ranks.
at::Tensor whole_of_parts(const at::Tensor& part, int64_t rows, Communicator& ranks);

}  // namespace heddle::moe
