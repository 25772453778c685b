// Loading of machine code for the GPU's architecture, else of PTX that the driver compiles.
#include "cuda/kernel_library.h"

#include <string_view>

#include "cuda/check.h"

// Defined in kernels/images.S.
extern "C" {
extern const char heddle_kernels_sm_80[], heddle_kernels_sm_90[], heddle_kernels_sm_100[],
    heddle_kernels_ptx[];
}

namespace heddle::nccl {
namespace {

// Returns the image for a major version. Machine code runs on later minor versions of the same major version.
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
  check(cudaGetDevice(&device), "get the current device");
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "get its architecture");
  cudaLibrary_t library = nullptr;
  check(cudaLibraryLoadData(&library, image_for(major), nullptr, nullptr, 0, nullptr, nullptr, 0),
        "load heddle's kernels");
  return *new KernelLibrary(library);  // never freed
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
