// Products of rows that are sorted by expert with each expert's own matrix, into one output.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "heddle/base/export.h"

namespace heddle::model {

// The rows of expert e are begins[e] .. begins[e + 1]. No row is padded, and an expert without rows costs
// nothing. Below autograd, on any device, of any dtype.

// x [rows, in], weights [experts, out, in]: each row times its expert's matrix transposed, [rows, out].
HEDDLE_API at::Tensor grouped_product(const at::Tensor& x, const at::Tensor& weights,
                                      std::span<const int64_t> begins);
// out [rows, columns] += its expert's row of `bias` [experts, columns], times `shares` [rows] (fp32, or fp64
// for fp64) where that is given.
HEDDLE_API void add_grouped_bias(const at::Tensor& out, std::span<const int64_t> begins,
                                 const at::Tensor& bias, const at::Tensor& shares = {});
// dy [rows, out] times the matrices as they are: [rows, in].
HEDDLE_API at::Tensor grouped_product_back(const at::Tensor& dy, const at::Tensor& weights,
                                           std::span<const int64_t> begins);
// dy^T x of each expert's rows: [experts, out, in]; zeros for an expert without rows.
HEDDLE_API at::Tensor grouped_weight_gradient(const at::Tensor& dy, const at::Tensor& x,
                                              std::span<const int64_t> begins);

// The sum of each expert's rows, [experts, columns], of rows * shares [rows] where that is given. Zeros for
// an expert without rows.
HEDDLE_API at::Tensor grouped_sum(const at::Tensor& rows, std::span<const int64_t> begins,
                                  const at::Tensor& shares = {});
// Each row times its expert's row of `bias` [experts, columns], in wide arithmetic: [rows]. The gradient of
// `shares` above.
HEDDLE_API at::Tensor grouped_dot(const at::Tensor& rows, const at::Tensor& bias,
                                  std::span<const int64_t> begins);

}  // namespace heddle::model
