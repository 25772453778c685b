// Whether a GPU can be used, derived from what look() found without initializing CUDA.
#pragma once

#include <optional>
#include <string>

namespace heddle::nccl {

struct Probe {
  std::optional<std::string> visible;  // CUDA_VISIBLE_DEVICES, if set
  bool driver = false;                 // the driver's library can be opened
  int gpus = 0;                        // GPUs that the driver counts
  std::string torch_directory;         // directory of LibTorch's libraries
  bool torch_has_cuda = false;         // it contains libtorch_cuda.so
};

// Returns what is missing first. Empty if a GPU can be used.
inline std::string why_absent(const Probe& probe) {
  if (!probe.driver)
    return "there is no NVIDIA driver (neither libnvidia-ml.so.1 nor libcuda.so.1 can be opened)";
  if (probe.gpus == 0) return "there is an NVIDIA driver, but no GPU";
  if (probe.visible && (probe.visible->empty() || probe.visible->front() == '-'))
    return "CUDA_VISIBLE_DEVICES is '" + *probe.visible + "', which hides every GPU";
  if (!probe.torch_has_cuda)
    return "the LibTorch in '" + probe.torch_directory +
           "' has no libtorch_cuda.so, so it is a build for the CPU";
  return "";
}

// Fills a Probe. Counts GPUs with NVML, which starts no driver in this process and so allows a later fork, or
// by device files if there is no NVML.
Probe look();

}  // namespace heddle::nccl
