// The LibTorch that commands use, found without loading it.
#pragma once

#include <filesystem>
#include <string>

namespace heddle::cli {

// The torch package that HEDDLE_TORCH names; empty where it is not set. Throws Error{usage} where it holds
// no LibTorch, or another version than this program was built for.
std::filesystem::path torch_of_environment();

// Loads the LibTorch that HEDDLE_TORCH names, where it is set: libraries that need one by its name get it,
// wherever they would look for it. Throws Error{usage}.
void load_torch_of_environment();

// "heddle 0.1.0 (SDK 3)", and on a second line LibTorch's version and directory: that of HEDDLE_TORCH, else
// the first in the search path of the loader.
std::string version_text();

}  // namespace heddle::cli
