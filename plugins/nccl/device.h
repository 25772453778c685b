// The device `nccl`, which does not depend on CUDA, and how it opens the library that does.
#pragma once

#include <memory>

#include "heddle/sdk.h"

namespace heddle::nccl {

// Finds out whether a GPU is available, and opens LibTorch's CUDA libraries and heddle_nccl_cuda.so (in the
// plugin's directory) in start(): a machine without a GPU loads none of them.
class Device : public IDevice {
 public:
  std::string absent() const override;
  // Throws Error{plugin_failed} when a library does not open, Error{mesh} when this rank has no GPU.
  c10::Device start(int local_rank) override;
  std::unique_ptr<Rendezvous> wrap(Rendezvous& host) override;
  DeviceMemory memory() const override;
  std::string name() const override;
  void synchronize() override;

 private:
  IDevice& cuda() const;

  std::unique_ptr<IDevice> cuda_;  // from start() on
};

// The one exported function of heddle_nccl_cuda.so: makes the device that uses CUDA.
using MakeCudaDevice = IDevice*();
inline constexpr const char* kMakeCudaDevice = "heddle_nccl_make_cuda_device";

}  // namespace heddle::nccl
