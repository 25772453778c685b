// A box of a tensor that is small enough to be asked for, whatever shape a file claims.
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

// At most three along each dim, from the start or from the end; 4096 numbers at most.
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
