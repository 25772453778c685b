// The device `simulated`: of the tests, beside no other CUDA.
#include <ATen/Context.h>

#include <algorithm>

#include "communicator.h"
#include "current.h"
#include "device_ops.h"
#include "heddle/sdk.h"

namespace heddle::simulated {
namespace {

class Device : public IDevice {
 public:
  std::string absent() const override { return ""; }
  c10::Device start(int local_rank) override {
    if (local_rank >= Memory::kDevices)
      throw Error(ErrorCode::mesh, "simulated",
                  "local rank " + std::to_string(local_rank) +
                      " has no GPU: " + std::to_string(Memory::kDevices) + " are simulated");
    if (!at::globalContext().hasCUDA())
      throw Error(ErrorCode::internal, "simulated",
                  "LibTorch was used before the device was started, and has settled on having none",
                  "let nothing compute before the engine starts the device");
    device_ = local_rank;
    set_current_device(device_);
    offer_device_ops();
    return {at::kCUDA, static_cast<c10::DeviceIndex>(device_)};
  }
  std::unique_ptr<Rendezvous> wrap(Rendezvous& host) override {
    return std::make_unique<DeviceRendezvous>(host, device_);
  }
  DeviceMemory memory() const override {
    return {Machine::get().bytes(device_, false), Machine::get().bytes(device_, true)};
  }
  std::string name() const override { return "simulated"; }
  void synchronize() override { Machine::get().synchronize_device(device_, "the device"); }

 private:
  int device_ = 0;
};

}  // namespace
}  // namespace heddle::simulated

HEDDLE_PLUGIN("simulated", "0.1.0", "device simulated") {
  plugin.device<heddle::simulated::Device>("simulated");
}
