// The products of linear layers as matrices, below autograd: several layers by one if their weights allow.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <span>
#include <vector>

#include "heddle/nn/linear.h"

namespace heddle::model {

struct Weights {
  const at::Tensor &weight, &bias;
};
using FewWeights = c10::SmallVector<Weights, 3>;

// [..., width] as [rows, width].
at::Tensor rows_of(const at::Tensor& x);

// [rows, columns] with the leading dims of x.
at::Tensor shaped(at::Tensor y, const at::Tensor& x);

// Without a call of the dispatcher where it has the dtype.
inline at::Tensor in_dtype(const at::Tensor& x, at::ScalarType dtype) {
  return x.scalar_type() == dtype ? x : x.to(dtype);
}

// residual + x W^T + b, with the leading dims of x; residual and bias may be undefined.
at::Tensor product(const at::Tensor& residual, const at::Tensor& x, const Weights& layer);

// All layers by one product, if their weights are adjacent: the outputs are its columns. False: not adjacent,
// nothing is done.
bool multiply_joined(const at::Tensor& x, const FewWeights& layers, FewTensors& out);

// Vertically adjacent matrices in one storage as one matrix; undefined if they are not adjacent.
at::Tensor joined_rows(std::span<const at::Tensor> parts);

// Matrices side by side as one: a view if they are columns of one already, else a copy.
at::Tensor joined_columns(const std::vector<at::Tensor>& parts);

}  // namespace heddle::model
