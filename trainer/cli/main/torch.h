// Finds the LibTorch that commands use, without loading it.
#pragma once

#include <filesystem>
#include <string>

namespace heddle::cli {

// Returns the torch package that HEDDLE_TORCH names; empty if it is not set. Throws Error{usage} if the
// package contains no LibTorch, or another version than this program was built with.
std::filesystem::path torch_of_environment();

// Loads the LibTorch that HEDDLE_TORCH names, if set. Libraries that need LibTorch by name then get this one.
// Throws Error{usage}.
void load_torch_of_environment();

// Returns "heddle 0.1.0 (SDK 3)", and on a second line LibTorch's version and directory: that of
// HEDDLE_TORCH, else the first in the loader's search path.
std::string version_text();

}  // namespace heddle::cli
