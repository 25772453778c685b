// Copies of tensors on the CPU, in buffers that are reused.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "heddle/checkpoint/sharded.h"

namespace heddle {

class Copies {
 public:
  // Returns the parts with tensors on the CPU, valid until the next call. Allocates and touches buffers when
  // part sizes first occur. For parts on a device, buffers are pinned and copies may still be running on
  // return: synchronize the device.
  std::vector<checkpoint::Part> of(std::span<const checkpoint::Part> parts);

  int64_t bytes() const;

 private:
  at::Tensor& buffer_for(size_t place, const at::Tensor& tensor);

  std::vector<at::Tensor> buffers_;
};

}  // namespace heddle
