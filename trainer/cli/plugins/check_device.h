// Device of `heddle plugins check --device NAME`.
#pragma once

#include <optional>
#include <string>

#include "heddle/testing/conformance.h"

namespace heddle::cli {

// Returns the device; empty: the CPU. "simulated" is a library near the plugins, with eight devices in one
// process; "cuda" is the first available device of a plugin. Throws Error{usage} for another name, and
// Error{plugin_missing} for a device that is not found.
std::optional<kits::KitDevice> device_of_check(const std::string& name);

}  // namespace heddle::cli
