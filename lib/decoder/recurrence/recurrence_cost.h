// Cost of a recurrence over tokens, for meta tensors on which nothing is computed.
#pragma once

#include <ATen/core/Tensor.h>

#include <initializer_list>

#include "heddle/ops/compute_log.h"

namespace heddle::decoder {

// multiplications: per token in one pass of the recurrence itself; chunks take more. The backward recomputes
// the forward and takes two products for each of its products.
inline void record_recurrence(const char* name, std::initializer_list<const at::Tensor*> inputs,
                              const at::Tensor& out, double multiplications, bool backward) {
  if (!records_operators()) return;
  const auto bytes = [](const at::Tensor& x) { return static_cast<double>(x.nbytes()); };
  double read = 0;
  for (const at::Tensor* input : inputs) read += bytes(*input);
  record_operator(name,
                  {(backward ? 6 : 2) * multiplications * static_cast<double>(out.size(0)),
                   backward ? read + bytes(out) : read, backward ? read : bytes(out)},
                  ProductShape{1, out.size(0), 1, static_cast<int64_t>(multiplications), out.scalar_type()});
}

}  // namespace heddle::decoder
