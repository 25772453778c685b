// heddle's kernels of a GPU on simulated ones: each is one launch, computed by operators of the CPU.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

namespace heddle::simulated {

// A tensor of a launch, and whether it is written.
struct Touched {
  at::Tensor tensor;  // undefined: none
  bool writes = false;
};

// One launch on the current stream of the first tensor's device. `run` gets what kernels see of the tensors,
// in their order.
using Kernel = std::function<void(const std::vector<at::Tensor>&)>;
void launch_kernel(const std::string& name, const std::vector<Touched>& tensors, Kernel run);

// Sets the table of the layers for this process, as the plugin nccl does when it starts a device.
void offer_device_ops();

}  // namespace heddle::simulated
