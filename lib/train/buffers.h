// Buffers to receive into, used again when nothing else holds them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

namespace heddle::train {

// A buffer is free once no tensor but the one kept here shares its storage: whoever received into it, and
// autograd, need not give it back.
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
