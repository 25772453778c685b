// Checkpoints of other programs, told apart by the files that they are made of: none of them is read.
#pragma once

#include <filesystem>
#include <optional>

#include "heddle/base/error.h"
#include "heddle/base/export.h"

namespace heddle {

// What to throw where PATH (a directory, or a file) is a checkpoint of another program: Error{input} with its
// kind, why it is not read, and the tool that makes a Hugging Face directory of it. Empty: nothing known.
HEDDLE_API std::optional<Error> foreign_checkpoint(const std::filesystem::path& path);

}  // namespace heddle
