// The templates of `heddle plugins new`; no LibTorch.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace heddle::cli {

// share/heddle/template, beside the program in a build and in ../share once it is installed.
std::filesystem::path template_directory();

// The kinds of which there are templates, sorted: the folders in it. Empty where it is not there.
std::vector<std::string> template_names();

}  // namespace heddle::cli
