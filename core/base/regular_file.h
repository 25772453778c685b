// A file is looked at before it is opened: opening a FIFO waits for its writer, and a device may do anything.
#pragma once

#include <filesystem>

#include "heddle/base/error.h"
#include "heddle/base/export.h"

namespace heddle {

// Throws Error{code} at `path` when that is, links followed, a directory, a FIFO, a socket or a device: "is a
// FIFO; a regular file is expected". What is missing or hidden is left to the opening.
HEDDLE_API void refuse_irregular(const std::filesystem::path& path, ErrorCode code);

}  // namespace heddle
