// Copies of tensors in memory that is kept from one time to the next.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "heddle/checkpoint/sharded.h"

namespace heddle {

class Copies {
 public:
  // The same parts with tensors of their own on the CPU, valid until the next call. The memory is taken, and
  // touched, when parts of these sizes come for the first time; it is pinned for parts on a device, whose
  // copies may be under way when this returns: wait for the device.
  std::vector<checkpoint::Part> of(std::span<const checkpoint::Part> parts);

  int64_t bytes() const;

 private:
  at::Tensor& buffer_for(size_t place, const at::Tensor& tensor);

  std::vector<at::Tensor> buffers_;
};

}  // namespace heddle
