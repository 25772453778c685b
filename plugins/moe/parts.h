// Tokens that the ranks of tp all hold: each brings a part of them to the experts.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

#include "heddle/mesh/communicator.h"

namespace heddle::moe {

// This rank's rows of x [rows, ...] and weights [rows, k]: ceil(rows / ranks) of them, the last ranks fewer.
// Backward: a gather, so that every rank has the gradient of all rows.
std::pair<at::Tensor, at::Tensor> own_part(const at::Tensor& x, const at::Tensor& weights,
                                           Communicator& ranks);
at::Tensor own_part(const at::Tensor& plain, Communicator& ranks);  // without a gradient

// The rows of all ranks, `rows` of them. Backward: this rank's rows; the gradient is the same on every rank.
at::Tensor whole_of_parts(const at::Tensor& part, int64_t rows, Communicator& ranks);

}  // namespace heddle::moe
