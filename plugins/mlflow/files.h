// Files of the store: small texts, and files of figures that grow line by line. All throw Error{io}.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace heddle::mlflow {

void make_directory(const std::filesystem::path& directory);
// A whole file with its directories.
void write_file(const std::filesystem::path& file, const std::string& text);
// The same, renamed into its place, so that a reader finds no half.
void replace_file(const std::filesystem::path& file, const std::string& text);
// A line in one write, so that a process that is killed leaves whole lines.
void append_line(const std::filesystem::path& file, const std::string& line);
// Takes away the lines "time value step" of this step and later ones, and one that was cut.
void keep_before(const std::filesystem::path& file, int64_t step);

}  // namespace heddle::mlflow
