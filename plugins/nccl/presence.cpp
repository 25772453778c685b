// Detection of GPUs by the environment, the driver's libraries, device files and LibTorch's directory.
#include "presence.h"

#include <c10/core/Allocator.h>
#include <dlfcn.h>

#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace heddle::nccl {
namespace {

namespace fs = std::filesystem;

bool opens(const char* library) {
  void* handle = dlopen(library, RTLD_LAZY | RTLD_LOCAL);
  if (handle != nullptr) dlclose(handle);
  return handle != nullptr;
}

// Counts GPUs with NVML. Empty if NVML fails.
std::optional<int> counted_by_nvml() {
  void* library = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) return std::nullopt;
  const auto start = reinterpret_cast<int (*)()>(dlsym(library, "nvmlInit_v2"));
  const auto count = reinterpret_cast<int (*)(unsigned*)>(dlsym(library, "nvmlDeviceGetCount_v2"));
  const auto stop = reinterpret_cast<int (*)()>(dlsym(library, "nvmlShutdown"));
  std::optional<int> gpus;
  if (start != nullptr && count != nullptr && stop != nullptr && start() == 0) {
    unsigned found = 0;
    if (count(&found) == 0) gpus = static_cast<int>(found);
    stop();
  }
  dlclose(library);
  return gpus;
}

// Counts /dev/nvidia0, /dev/nvidia1, ...
int counted_by_files() {
  int gpus = 0;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator("/dev", ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.size() > 6 && name.starts_with("nvidia") && std::isdigit(static_cast<unsigned char>(name[6])))
      ++gpus;
  }
  return gpus;
}

}  // namespace

Probe look() {
  Probe probe;
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) probe.visible = visible;
  const std::optional<int> counted = counted_by_nvml();
  probe.driver = counted || opens("libcuda.so.1");
  probe.gpus = counted ? *counted : counted_by_files();
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&c10::GetAllocator), &info) != 0 && info.dli_fname != nullptr)
    probe.torch_directory = fs::path(info.dli_fname).parent_path().string();
  std::error_code ignored;
  probe.torch_has_cuda = fs::exists(fs::path(probe.torch_directory) / "libtorch_cuda.so", ignored);
  return probe;
}

}  // namespace heddle::nccl
