// Glob patterns over the files of a directory, as fsspec and the library datasets match them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle {

// Whether a pattern has `*`, `?` or `[`.
bool has_wildcards(std::string_view pattern);

// Whether `name`, a part of a path, matches `pattern`: `*`, `?`, `[a-z]`, `[!a]`; `*` alone needs a
// character.
bool matches_part(std::string_view name, std::string_view pattern);

// The files below a directory. Links to files are files; links to directories are not followed, except where
// a pattern names them. Each place that patterns begin at is listed once.
class FileTree {
 public:
  explicit FileTree(std::filesystem::path directory) : directory_(std::move(directory)) {}

  // Files that match, relative to the directory and sorted by their bytes. `**` as a whole part stands for
  // any number of directories. Hidden files and directories, directories that begin with `__`, README.md,
  // config.json and notes of datasets match only where the pattern spells them. Throws Error{input} with the
  // pattern as its place where `**` is only a piece of a part, or where the pattern leaves the directory.
  std::vector<std::string> matching(const std::string& pattern);

 private:
  using Parts = std::vector<std::string_view>;
  struct Listing {
    std::vector<std::string> files;  // relative to the place that is listed, sorted
    std::vector<Parts> parts;        // views of them
  };
  const Listing& listing(const std::string& place, size_t depth);

  std::filesystem::path directory_;
  std::map<std::pair<std::string, size_t>, Listing> listings_;
};

}  // namespace heddle
