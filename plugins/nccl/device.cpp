// Opening of the CUDA library when a GPU is needed.
#include "device.h"

#include <dlfcn.h>

#include <filesystem>

#include "environment.h"
#include "presence.h"

namespace heddle::nccl {
namespace {

namespace fs = std::filesystem;

// Opens a library that is never closed, because hooks and autograd nodes outlive any handle. mode:
// RTLD_GLOBAL for LibTorch's libraries.
void* open(const fs::path& library, int mode, const std::string& hint) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | mode);
  if (handle == nullptr)
    throw Error(ErrorCode::plugin_failed, library.string(), std::string("cannot be opened: ") + dlerror(),
                hint);
  return handle;
}

fs::path own_directory() {
  static const char here = 0;
  Dl_info info{};
  return dladdr(&here, &info) != 0 ? fs::canonical(info.dli_fname).parent_path() : fs::path();
}

}  // namespace

std::string Device::absent() const {
  return why_absent(look());
}

c10::Device Device::start(int local_rank) {
  set_environment();
  // libtorch_cuda is first, because it finds libnccl and other libraries by its own paths.
  open(fs::path(look().torch_directory) / "libtorch_cuda.so", RTLD_GLOBAL,
       "install torch 2.11.0 with its nvidia packages, or set dist_env.backend: gloo");
  void* library = open(own_directory() / "heddle_nccl_cuda.so", RTLD_LOCAL, "rebuild the plugin nccl");
  auto* make = reinterpret_cast<MakeCudaDevice*>(dlsym(library, kMakeCudaDevice));
  if (make == nullptr)
    throw Error(ErrorCode::plugin_failed, (own_directory() / "heddle_nccl_cuda.so").string(), dlerror(),
                "rebuild the plugin nccl");
  cuda_.reset(make());
  return cuda_->start(local_rank);
}

IDevice& Device::cuda() const {
  if (!cuda_) throw Error(ErrorCode::internal, "nccl", "the device is used before start()");
  return *cuda_;
}

std::unique_ptr<Rendezvous> Device::wrap(Rendezvous& host) {
  return cuda().wrap(host);
}

DeviceMemory Device::memory() const {
  return cuda().memory();
}

std::string Device::name() const {
  return cuda().name();
}

void Device::synchronize() {
  cuda().synchronize();
}

}  // namespace heddle::nccl
