// The device `nccl`, which does not depend on CUDA, and opens the library that does.
#pragma once

#include <memory>

#include "heddle/sdk.h"

namespace heddle::nccl {

// Detects GPUs. start() opens LibTorch's CUDA libraries and heddle_nccl_cuda.so (in the plugin's directory),
// so a machine without a GPU loads none of them.
class Device : public IDevice {
 public:
  std::string absent() const override;
  // Throws Error{plugin_failed} if a library cannot be opened, and Error{mesh} if this rank has no GPU.
  c10::Device start(int local_rank) override;
  std::unique_ptr<Rendezvous> wrap(Rendezvous& host) override;
  DeviceMemory memory() const override;
  std::string name() const override;
  void synchronize() override;

 private:
  IDevice& cuda() const;

  std::unique_ptr<IDevice> cuda_;  // set by start()
};

// The one exported function of heddle_nccl_cuda.so, which creates the device that uses CUDA.
using MakeCudaDevice = IDevice*();
inline constexpr const char* kMakeCudaDevice = "heddle_nccl_make_cuda_device";

}  // namespace heddle::nccl
