// The door kit in a process of its own, so that a plugin that ends its process is a line in the report.
#pragma once

#include <filesystem>

#include "heddle/testing/conformance.h"

namespace heddle::cli {

// Throws Error{plugin_missing} when there is no such file.
testing::Report check_apart(const std::filesystem::path& file);

}  // namespace heddle::cli
