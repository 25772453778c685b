// Whether a GPU can be used here, from what was looked up, without initialising CUDA.
#pragma once

#include <optional>
#include <string>

namespace heddle::nccl {

struct Probe {
  std::optional<std::string> visible;  // CUDA_VISIBLE_DEVICES, if set
  bool driver = false;                 // the driver's library opens
  int gpus = 0;                        // that the driver counts
  std::string torch_directory;         // the libraries of LibTorch
  bool torch_has_cuda = false;         // libtorch_cuda.so is among them
};

// Empty: a GPU can be used. Else the first thing that is missing.
inline std::string why_absent(const Probe& probe) {
  if (!probe.driver) return "there is no NVIDIA driver (neither libnvidia-ml.so.1 nor libcuda.so.1 opens)";
  if (probe.gpus == 0) return "there is an NVIDIA driver, and no GPU";
  if (probe.visible && (probe.visible->empty() || probe.visible->front() == '-'))
    return "CUDA_VISIBLE_DEVICES is '" + *probe.visible + "', which hides every GPU";
  if (!probe.torch_has_cuda)
    return "the LibTorch in '" + probe.torch_directory + "' has no libtorch_cuda.so: it is built for the CPU";
  return "";
}

// Looks it up: counts GPUs with NVML, which starts no driver in this process and so allows a later fork;
// without NVML, by the device files.
Probe look();

}  // namespace heddle::nccl
