// log(sum(e^x)), with shapes alone on meta, where LibTorch has it not.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/logsumexp.h>

namespace heddle::model {

inline at::Tensor log_sum_exp(const at::Tensor& x, int64_t dim, bool keeps_dim) {
  return x.is_meta() ? at::amax(x, dim, keeps_dim) : at::logsumexp(x, dim, keeps_dim);
}

}  // namespace heddle::model
