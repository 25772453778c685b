// The conformance kits in a process of its own, so that a plugin that ends its process is a line in the
// report.
#pragma once

#include <filesystem>

#include "heddle/testing/conformance.h"

namespace heddle::cli {

// Opens the library of kits there, which no other command needs. `options.ended` is called here as the lines
// come. Throws Error{plugin_missing} when there is no such file, and Error{config} for invalid fields.
kits::Report check_apart(const std::filesystem::path& file, const kits::KitOptions& options);

}  // namespace heddle::cli
