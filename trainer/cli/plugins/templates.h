// Templates of `heddle plugins new`, found without LibTorch.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace heddle::cli {

// Returns share/heddle/template: next to the program in a build, in ../share after an installation.
std::filesystem::path template_directory();

// Returns the kinds of templates, sorted: the folders of the template directory. Empty if it does not exist.
std::vector<std::string> template_names();

}  // namespace heddle::cli
