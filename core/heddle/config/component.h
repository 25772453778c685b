// Names of code in a configuration.
#pragma once

#include <span>
#include <string>

#include "heddle/base/export.h"
#include "heddle/config/node.h"

namespace heddle::config {

// The known name that a dotted one ends in: "torch.optim.AdamW" and "optim.py:AdamW" are AdamW. Throws
// Error{config} that names what there is.
HEDDLE_API std::string component_of(const Node& dotted, std::span<const std::string> known);

}  // namespace heddle::config
