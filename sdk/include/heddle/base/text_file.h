// Writes files of plugins: whole files, and logs that grow by lines. All functions throw Error{io} with the
// reason. `key` is the configuration field that sets another path, such as "wandb.save_dir", for the hint.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "heddle/base/error.h"
#include "heddle/base/export.h"

namespace heddle::text_file {

// number: a value of errno.
HEDDLE_API Error cannot_write(const std::filesystem::path& file, int number, const std::string& key);

// Writes to an open file, and continues after interrupted and partial writes.
HEDDLE_API void write_all(int descriptor, std::string_view text, const std::filesystem::path& file,
                          const std::string& key);

// Creates a directory and its missing parents.
HEDDLE_API void make_directory(const std::filesystem::path& directory, const std::string& key);
// Writes a whole file, replacing an existing one.
HEDDLE_API void write(const std::filesystem::path& file, std::string_view text, const std::string& key);
// Appends a line in one write, so that a killed process leaves only complete lines.
HEDDLE_API void append_line(const std::filesystem::path& file, const std::string& line,
                            const std::string& key);
// Keeps the lines before the first line that is unwanted or incomplete, and deletes the rest.
HEDDLE_API void keep_lines(const std::filesystem::path& file,
                           const std::function<bool(const std::string&)>& is_wanted, const std::string& key);
// Returns the first line, or "" if the file does not exist or is empty.
HEDDLE_API std::string first_line(const std::filesystem::path& file);

}  // namespace heddle::text_file
