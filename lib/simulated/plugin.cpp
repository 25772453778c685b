// The plugin that offers the device `simulated`.
#include <ATen/Context.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/mesh/device.h"
#include "heddle/plugin/entry_point.h"
#include "lib/simulated/communicator.h"
#include "lib/simulated/current.h"
#include "lib/simulated/device_ops.h"

namespace heddle::simulated {
namespace {

// HEDDLE_SIMULATED: at_once (the default), late, or the seed of a random order.
std::string asked_order() {
  const char* given = std::getenv("HEDDLE_SIMULATED");
  return given == nullptr ? "at_once" : given;
}

void begin_as_asked() {
  const std::string order = asked_order();
  if (order == "at_once") return Machine::get().begin(Policy::at_once);
  if (order == "late") return Machine::get().begin(Policy::late);
  if (order.empty() || order.find_first_not_of("0123456789") != std::string::npos)
    throw Error(ErrorCode::config, "HEDDLE_SIMULATED",
                "HEDDLE_SIMULATED must be at_once, late or a number, got '" + order + "'");
  Machine::get().begin(Policy::random, std::stoull(order));
}

// The ranks that have a device, as threads. The first of a run begins it.
std::mutex starting;
int started = 0;

class Device : public IDevice {
 public:
  ~Device() override {
    const std::lock_guard lock(starting);
    if (is_started_) --started;
  }
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
    {
      const std::lock_guard lock(starting);
      if (started == 0) begin_as_asked();
      if (!std::exchange(is_started_, true)) ++started;
    }
    set_current_device(device_);
    offer_device_ops();
    return {at::kCUDA, static_cast<c10::DeviceIndex>(device_)};
  }
  std::unique_ptr<Rendezvous> wrap(Rendezvous& host) override {
    Machine::get().set_patience(host.timeout());
    return std::make_unique<DeviceRendezvous>(host, device_);
  }
  DeviceMemory memory() const override {
    return {Machine::get().bytes(device_, false), Machine::get().bytes(device_, true)};
  }
  std::string name() const override {
    const std::string order = asked_order();
    return "simulated, " + (order == "late"      ? "work runs as late as it may"
                            : order == "at_once" ? "work runs at once"
                                                 : "work runs in the random order " + order);
  }
  // A run with a race fails here, at once: work behind it may never come.
  void synchronize() override {
    if (Machine::get().reports().empty()) Machine::get().synchronize_device(device_, "the device");
    const std::vector<std::string> reports = Machine::get().reports();
    if (reports.empty()) return;
    throw Error(ErrorCode::internal, "simulated",
                reports.front() +
                    (reports.size() == 1 ? "" : "; and " + std::to_string(reports.size() - 1) + " more"),
                "let an event, or Work::wait(), order the two");
  }

 private:
  int device_ = 0;
  bool is_started_ = false;
};

}  // namespace
}  // namespace heddle::simulated

HEDDLE_PLUGIN("simulated", "0.1.0", "device simulated") {
  plugin.device<heddle::simulated::Device>("simulated");
}
