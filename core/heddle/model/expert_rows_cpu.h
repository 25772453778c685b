// The sum of each token's rows on the CPU.
#pragma once

#include <ATen/core/Tensor.h>

namespace heddle::model {

// of_rows [rows, width], has_kernel(); row_of int64 [tokens * k], -1: none. Returns [tokens, width], each sum
// made in fp32 (fp64 for fp64) in the order of the choices.
at::Tensor combine_rows_cpu(const at::Tensor& of_rows, const at::Tensor& row_of, int64_t tokens);

}  // namespace heddle::model
