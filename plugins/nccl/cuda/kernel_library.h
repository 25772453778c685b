// The kernels of cuda/kernels, embedded for several architectures and loaded for the GPU of this process.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <string>

namespace heddle::nccl {

class KernelLibrary {
 public:
  // Returns the kernels of the current device, whose compute capability is at least 8.0.
  static const KernelLibrary& get();

  // Throws Error{internal} if there is no kernel of this name.
  cudaKernel_t find(const std::string& name) const;

 private:
  explicit KernelLibrary(cudaLibrary_t library) : library_(library) {}
  static const KernelLibrary& load();
  cudaLibrary_t library_;
};

constexpr int kThreads = 256;  // threads per block, as in kernels/device.h

void launch_kernel(cudaKernel_t kernel, int64_t blocks, size_t shared, cudaStream_t stream, void** arguments);

// `shared`: bytes of dynamic shared memory.
template <class... Arguments>
void launch(cudaKernel_t kernel, int64_t blocks, size_t shared, cudaStream_t stream, Arguments... arguments) {
  std::array<void*, sizeof...(Arguments)> pointers{static_cast<void*>(&arguments)...};
  launch_kernel(kernel, blocks, shared, stream, pointers.data());
}

}  // namespace heddle::nccl
