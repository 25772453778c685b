// Recognizes checkpoints of other programs by their files; heddle does not read them.
#pragma once

#include <filesystem>
#include <optional>

#include "heddle/base/error.h"
#include "heddle/base/export.h"

namespace heddle {

// Returns the error for PATH (a directory or a file) if it is a checkpoint of another program: Error{input}
// with its format, why heddle does not read it, and the tool that converts it to a Hugging Face directory.
// Empty: not recognized.
HEDDLE_API std::optional<Error> foreign_checkpoint(const std::filesystem::path& path);

}  // namespace heddle
