// Runs the conformance kits in a separate process, so that a plugin that exits its process is a line in the
// report.
#pragma once

#include <filesystem>

#include "heddle/testing/conformance.h"

namespace heddle::cli {

// Runs the kits on a plugin; the child loads the kits' library, which no other command needs. Calls
// `options.ended` as lines arrive. Throws Error{plugin_missing} for a missing file, and Error{config} for
// invalid fields.
kits::Report check_apart(const std::filesystem::path& file, const kits::KitOptions& options);

}  // namespace heddle::cli
