// Receive buffers, reused when nothing else holds them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

namespace heddle::train {

// A buffer is free once only the tensor kept here shares its storage: receivers and autograd need not return
// it.
class Buffers {
 public:
  // Keeps at most `most` buffers; 0: none is kept.
  explicit Buffers(size_t most) : most_(most) {}

  at::Tensor take(at::IntArrayRef sizes, at::ScalarType dtype, at::Device device);

 private:
  size_t most_;
  std::vector<at::Tensor> kept_;
};

}  // namespace heddle::train
