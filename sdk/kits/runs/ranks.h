// The ranks of a kit: threads with strict communicators on the CPU, or each with a device of the check.
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

// The device of KitOptions::device, opened.
class CheckDevice {
 public:
  // Throws Error{plugin_missing} for a file that offers none, and what loading it throws.
  explicit CheckDevice(KitDevice device);
  std::unique_ptr<IDevice> make() const { return offered_->make(); }
  const std::string& name() const { return device_.name; }
  int ranks() const { return device_.ranks; }

 private:
  const KitDevice device_;
  PluginRegistry registry_;
  const OfferedDevice* offered_ = nullptr;
};

// That of this thread's check; null: kits compute on the CPU.
const CheckDevice* check_device();

// Runs `body` on ranks that are threads. device: null for the CPU, whose collectives deliver late. Throws
// what the ranks throw, Error{plugin_failed} for tensors that are changed in flight and for what the device
// finds once its work has ended, and NotRun where the device has fewer ranks.
void run_ranks(int ranks, const CheckDevice* device, const std::function<void(Rendezvous&)>& body);

// The same for one rank on this thread.
void run_alone(const CheckDevice* device, const std::function<void(Rendezvous&)>& body);

// "on the device 'simulated', with the plugin 'acme': ".
std::string on_the_device(const CheckDevice& device);

}  // namespace heddle::kits
