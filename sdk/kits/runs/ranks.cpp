// Creates a device for each rank before the ranks begin, and destroys it when all have ended.
#include "ranks.h"

#include <chrono>
#include <exception>
#include <utility>
#include <vector>

#include "../attempt.h"
#include "../watch.h"
#include "heddle/transport/threads.h"
#include "hostile.h"
#include "lib/testing/whole_tensors.h"

namespace heddle::kits {
namespace {

// Waits for the device's work, and throws the fault that it finds. Rethrows errors of a lost rank.
void end_work(IDevice& device, const std::string& told) {
  try {
    device.synchronize();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::rank_lost || error.code() == ErrorCode::timeout) throw;
    found(told + error.message() + (error.hint().empty() ? "" : "; " + error.hint()));
  }
}

// Throws the fault that the device found, which explains more than wrong results.
void throw_cause(IDevice& device, const std::string& told) {
  try {
    end_work(device, told);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::plugin_failed) throw;
  }
}

// Runs the rank's work on its device. A fault that the device finds is attributed to the plugin.
void run_on(IDevice& device, const std::string& told, Rendezvous& host,
            const std::function<void(Rendezvous&)>& body) {
  device.start(host.local_rank());
  const std::unique_ptr<Rendezvous> own = device.wrap(host);
  try {
    body(*own);
    end_work(device, told);
  } catch (const std::exception& error) {
    own->abandon(error.what());  // other ranks wait on their devices, which no other thread interrupts
    throw_cause(device, told);
    throw;
  }
  host.barrier("kit: the end of the devices' work");
}

}  // namespace

CheckDevice::CheckDevice(KitDevice device) : device_(std::move(device)), registry_({}) {
  registry_.load(device_.file.string());
  for (const std::string& name : registry_.names(OfferedDevice::kKind))
    if (offered_ == nullptr) offered_ = registry_.device(name);
  if (offered_ == nullptr)
    throw Error(ErrorCode::plugin_missing, device_.file.string(), "it offers no device");
}

const CheckDevice* check_device() {
  Watch* const watch = Watch::current();
  return watch == nullptr ? nullptr : watch->device.get();
}

std::string on_the_device(const CheckDevice& device) {
  Watch* const watch = Watch::current();
  return "on the device '" + device.name() + "', with " +
         (watch == nullptr ? "the plugin" : watch->the_plugin()) + ": ";
}

void run_ranks(int ranks, const CheckDevice* device, const std::function<void(Rendezvous&)>& body) {
  Watch* const watch = Watch::current();
  std::vector<std::unique_ptr<IDevice>> devices;
  std::string told;
  if (device != nullptr) {
    if (ranks > device->ranks())
      throw NotRun{"it needs " + std::to_string(ranks) + " ranks in one process, but the device '" +
                   device->name() + "' supports " + std::to_string(device->ranks())};
    for (int rank = 0; rank < ranks; ++rank) devices.push_back(device->make());
    told = on_the_device(*device);
  }
  const auto faults = std::make_shared<WorkFaults>();
  ThreadWorld world(ranks, watch == nullptr ? std::chrono::seconds(60) : watch->patience());
  world.run([&](Rendezvous& host) {
    const Watch::Rank here(watch, host.rank());
    LateRendezvous strict(host, faults);
    if (devices.empty()) return body(strict);
    run_on(*devices[static_cast<size_t>(host.rank())], told, strict, body);
  });
  faults->check();
}

void run_alone(const CheckDevice* device, const std::function<void(Rendezvous&)>& body) {
  AloneRendezvous host;
  if (device == nullptr) return body(host);
  run_on(*device->make(), on_the_device(*device), host, body);
}

}  // namespace heddle::kits
