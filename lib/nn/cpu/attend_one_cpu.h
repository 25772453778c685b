// Attention of one new token to all cached keys and values, on the CPU.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "heddle/base/export.h"

namespace heddle::model {

// Whether attend_one_cpu() supports them: float32 on the CPU, with rows of k and v that are contiguous.
HEDDLE_API bool is_for_attend_one_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

// q [1, heads * head_dim] attends to every row of k and v [tokens, kv_heads * head_dim], where kv_heads
// divides heads; scale 1 / sqrt(head_dim). Returns q's shape. Below autograd.
HEDDLE_API at::Tensor attend_one_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                     int64_t tokens, int64_t head_dim);

}  // namespace heddle::model
