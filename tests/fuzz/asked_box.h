// Chooses a small box of a tensor, whatever shape a file claims.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace heddle::fuzz {

struct AskedBox {
  std::vector<int64_t> offset;
  at::Tensor tensor;
};

// Returns a box of at most three elements per dimension and 4096 in total, at the tensor's start or end.
inline AskedBox asked_box(const std::vector<int64_t>& shape, at::ScalarType dtype, bool from_the_end) {
  AskedBox box;
  std::vector<int64_t> size;
  int64_t numbers = 1;
  for (const int64_t length : shape) {
    const int64_t some = numbers > 1024 ? std::min<int64_t>(length, 1) : std::min<int64_t>(length, 3);
    size.push_back(some);
    numbers *= some;
    box.offset.push_back(from_the_end ? length - some : 0);
  }
  box.tensor = at::empty(size, at::TensorOptions(dtype));
  return box;
}

}  // namespace heddle::fuzz
