// Checks the kind of a file before it is opened: opening a FIFO waits for its writer, and a device may do
// anything. And the beginning of a file.
#pragma once

#include <filesystem>
#include <string>

#include "heddle/base/error.h"
#include "heddle/base/export.h"

namespace heddle {

// Throws Error{code} at `path` when that is, links followed, a directory, a FIFO, a socket or a device: "is a
// FIFO, but must be a regular file". A missing or unreadable file is reported when it is opened.
HEDDLE_API void refuse_irregular(const std::filesystem::path& path, ErrorCode code);

// The first bytes of a regular file; "" for anything else, and where it cannot be read.
HEDDLE_API std::string read_beginning(const std::filesystem::path& file, size_t bytes);

}  // namespace heddle
