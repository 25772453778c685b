// Files that a plugin writes: whole, or growing line by line. All throw Error{io} with the reason; `key` is
// the field of the configuration that names another place ("wandb.save_dir"), for the hint.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "heddle/base/error.h"
#include "heddle/base/export.h"

namespace heddle::text_file {

// number: of errno.
HEDDLE_API Error cannot_write(const std::filesystem::path& file, int number, const std::string& key);

// To an open file; interrupted and partial writes go on.
HEDDLE_API void write_all(int descriptor, std::string_view text, const std::filesystem::path& file,
                          const std::string& key);

HEDDLE_API void make_directory(const std::filesystem::path& directory, const std::string& key);
// A whole file; one that is there is replaced.
HEDDLE_API void write(const std::filesystem::path& file, std::string_view text, const std::string& key);
// A line in one write, so that a process that is killed leaves whole lines.
HEDDLE_API void append_line(const std::filesystem::path& file, const std::string& line,
                            const std::string& key);
// Keeps the lines before the first that is not wanted, or that was cut.
HEDDLE_API void keep_lines(const std::filesystem::path& file,
                           const std::function<bool(const std::string&)>& is_wanted, const std::string& key);
// Empty where there is none.
HEDDLE_API std::string first_line(const std::filesystem::path& file);

}  // namespace heddle::text_file
