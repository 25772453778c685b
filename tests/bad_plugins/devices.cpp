// Good: two devices without hardware. `ghost` is never available. `paper` is available and uses meta tensors.
// HEDDLE_FAULT selects a fault of `paper`.
#include "faults/fault.h"
#include "heddle/mesh/dry.h"
#include "heddle/sdk.h"

namespace {

class Ghost : public heddle::IDevice {
 public:
  std::string absent() const override { return "this machine has none"; }
  c10::Device start(int) override { throw std::runtime_error("a ghost was started"); }
  std::unique_ptr<heddle::Rendezvous> wrap(heddle::Rendezvous&) override { return nullptr; }
  heddle::DeviceMemory memory() const override { return {}; }
  void synchronize() override {}
};

class PaperRendezvous : public heddle::DryRendezvous {
 public:
  using DryRendezvous::DryRendezvous;
  c10::Device device() const override { return at::kMeta; }
};

class Paper : public heddle::IDevice {
 public:
  std::string absent() const override {
    static int calls = 0;
    return faults::is("absent_changes") && ++calls % 2 == 0 ? "it is in use" : "";
  }
  c10::Device start(int local_rank) override {
    if (local_rank > 0) throw std::runtime_error("there is one sheet of paper");
    started_ = true;
    return faults::is("starts_on_another_device") ? at::kCPU : at::kMeta;
  }
  std::unique_ptr<heddle::Rendezvous> wrap(heddle::Rendezvous& host) override {
    if (!started_) throw std::runtime_error("wrap() came before start()");
    if (faults::is("wraps_nothing")) return nullptr;
    return std::make_unique<PaperRendezvous>(host.rank(), host.world_size());
  }
  heddle::DeviceMemory memory() const override { return {faults::is("peak_is_low") ? 3 : 1, 2}; }
  void synchronize() override {}

 private:
  bool started_ = false;
};

}  // namespace

HEDDLE_PLUGIN("devices", "0.1.0", "device ghost", "device paper sheet") {
  plugin.device<Ghost>("ghost");
  plugin.device<Paper>("paper");
}
