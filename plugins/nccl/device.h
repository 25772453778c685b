// The device `nccl` before there is anything of CUDA in the process, and the library that does the work.
#pragma once

#include <memory>

#include "heddle/sdk.h"

namespace heddle::nccl {

// Knows whether a GPU is there, and opens LibTorch's CUDA libraries and the plugin's hands
// (heddle_nccl_hands.so, beside it) in start(): a machine without a GPU loads nothing of them.
class Device : public IDevice {
 public:
  std::string absent() const override;
  // Throws Error{plugin_failed} when a library does not open, Error{mesh} when this rank has no GPU.
  c10::Device start(int local_rank) override;
  std::unique_ptr<Rendezvous> wrap(Rendezvous& host) override;
  DeviceMemory memory() const override;
  void synchronize() override;

 private:
  IDevice& hands() const;

  std::unique_ptr<IDevice> hands_;  // from start() on
};

// The one function of heddle_nccl_hands.so: what works on a GPU.
using MakeHands = IDevice*();
inline constexpr const char* kMakeHands = "heddle_nccl_make_hands";

}  // namespace heddle::nccl
