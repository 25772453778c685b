// The device that `heddle plugins check --device NAME` computes on.
#pragma once

#include <optional>
#include <string>

#include "heddle/testing/conformance.h"

namespace heddle::cli {

// none: the CPU. "simulated" is a library beside the plugins, with eight devices in one process; "cuda" is
// the first available device of a plugin, with one. Throws Error{usage} for another name, and
// Error{plugin_missing} for a device that is not there.
std::optional<kits::KitDevice> device_of_check(const std::string& name);

}  // namespace heddle::cli
