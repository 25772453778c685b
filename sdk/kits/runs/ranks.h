// The ranks of a kit: threads with strict communicators on the CPU, or with a device of the check each.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <string>

#include "heddle/mesh/call.h"
#include "heddle/mesh/device.h"
#include "heddle/plugin/offer.h"
#include "heddle/plugin/registry.h"
#include "heddle/testing/conformance.h"

namespace heddle::kits {

// The loaded device of KitOptions::device.
class CheckDevice {
 public:
  // Throws Error{plugin_missing} for a file without a device, and the errors of loading it.
  explicit CheckDevice(KitDevice device);
  std::unique_ptr<IDevice> make() const { return offered_->make(); }
  const std::string& name() const { return device_.name; }
  int ranks() const { return device_.ranks; }

 private:
  const KitDevice device_;
  PluginRegistry registry_;
  const OfferedDevice* offered_ = nullptr;
};

// Returns the device of this thread's check, or null for the CPU.
const CheckDevice* check_device();

// Runs `body` on ranks that are threads. device: null for the CPU, whose collectives deliver late. Throws the
// errors of the ranks, Error{plugin_failed} for tensors that are modified in flight and for faults that the
// device finds, and NotRun if the device supports fewer ranks.
void run_ranks(int ranks, const CheckDevice* device, const std::function<void(Rendezvous&)>& body);

// Runs `body` on one rank on this thread.
void run_alone(const CheckDevice* device, const std::function<void(Rendezvous&)>& body);

// Returns "on the device 'simulated', with the plugin 'acme': ".
std::string on_the_device(const CheckDevice& device);

}  // namespace heddle::kits
