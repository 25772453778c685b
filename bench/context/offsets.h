// Offsets of documents, for the benchmarks of context parallelism.
#pragma once

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace heddle::bench {

using Offsets = std::vector<int32_t>;

inline at::Tensor tensor_of(const Offsets& documents) {
  const at::Tensor out = at::empty({static_cast<int64_t>(documents.size())}, at::kInt);
  std::copy(documents.begin(), documents.end(), out.mutable_data_ptr<int32_t>());
  return out;
}

}  // namespace heddle::bench
