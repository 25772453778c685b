// Environment variables that the driver, NCCL and LibTorch's allocator read at their start.
#pragma once

#include <array>

namespace heddle::nccl {

struct Setting {
  const char *name, *value;
};

// NCCL_LAUNCH_ORDER_IMPLICIT: kernels of several communicators start in the order of the host's calls, which
// all ranks share. Otherwise two ranks may start them in different orders and deadlock.
// CUDA_DEVICE_MAX_CONNECTIONS: streams that share a hardware queue wait for each other, and the default is 8.
// PYTORCH_ALLOC_CONF: less fragmentation with blocks of many sizes.
inline constexpr std::array kSettings{Setting{"NCCL_LAUNCH_ORDER_IMPLICIT", "1"},
                                      Setting{"CUDA_DEVICE_MAX_CONNECTIONS", "32"},
                                      Setting{"PYTORCH_ALLOC_CONF", "expandable_segments:True"}};

// Sets each of kSettings that the environment does not set. PYTORCH_CUDA_ALLOC_CONF, the older name, counts
// as set. Call it before CUDA starts, while there is only one thread.
void set_environment();

}  // namespace heddle::nccl
