// Machine code for the GPU's architecture, else PTX that the driver compiles.
#include "cuda/kernel_library.h"

#include <string_view>

#include "cuda/check.h"

// Of kernels/images.S.
extern "C" {
extern const char heddle_kernels_sm_80[], heddle_kernels_sm_90[], heddle_kernels_sm_100[],
    heddle_kernels_ptx[];
}

namespace heddle::nccl {
namespace {

// Of one GPU: its code runs on later minor versions of the same major one.
const char* image_for(int major) {
  if (major == 8) return &heddle_kernels_sm_80[0];
  if (major == 9) return &heddle_kernels_sm_90[0];
  if (major == 10) return &heddle_kernels_sm_100[0];
  return &heddle_kernels_ptx[0];
}

}  // namespace

const KernelLibrary& KernelLibrary::get() {
  static const KernelLibrary& loaded = load();
  return loaded;
}

const KernelLibrary& KernelLibrary::load() {
  int device = 0, major = 0;
  check(cudaGetDevice(&device), "tell the device");
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "tell its architecture");
  cudaLibrary_t library = nullptr;
  check(cudaLibraryLoadData(&library, image_for(major), nullptr, nullptr, 0, nullptr, nullptr, 0),
        "load heddle's kernels");
  return *new KernelLibrary(library);  // for the life of the process
}

cudaKernel_t KernelLibrary::find(const std::string& name) const {
  cudaKernel_t kernel = nullptr;
  check(cudaLibraryGetKernel(&kernel, library_, name.c_str()), "find the kernel " + name);
  return kernel;
}

void launch_kernel(cudaKernel_t kernel, int64_t blocks, size_t shared, cudaStream_t stream,
                   void** arguments) {
  check(cudaLaunchKernel(reinterpret_cast<const void*>(kernel), dim3(static_cast<unsigned>(blocks)),
                         dim3(kThreads), arguments, shared, stream),
        "launch a kernel");
}

}  // namespace heddle::nccl
