// Files of the store: small texts, and metric files that grow line by line. All functions throw Error{io}.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace heddle::mlflow {

void make_directory(const std::filesystem::path& directory);
// Writes a whole file and creates its directories.
void write_file(const std::filesystem::path& file, const std::string& text);
// Writes a new file and renames it to `file`, so that a reader never sees a partial file.
void replace_file(const std::filesystem::path& file, const std::string& text);
// Appends a line in one write, so that a killed process leaves whole lines.
void append_line(const std::filesystem::path& file, const std::string& line);
// Removes the lines "time value step" of this step and later steps, and an incomplete last line.
void keep_before(const std::filesystem::path& file, int64_t step);

}  // namespace heddle::mlflow
