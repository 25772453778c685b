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

// Whether a pattern contains `*`, `?` or `[`.
bool has_wildcards(std::string_view pattern);

// Whether `name`, a path component, matches `pattern`: `*`, `?`, `[a-z]`, `[!a]`. `*` alone requires a
// character.
bool matches_part(std::string_view name, std::string_view pattern);

// The files below a directory. Links to files count as files; links to directories are followed only if a
// pattern names them. Each start directory of patterns is listed once.
class FileTree {
 public:
  explicit FileTree(std::filesystem::path directory) : directory_(std::move(directory)) {}

  // Returns the matching files, relative to the directory and sorted by bytes. `**` as a whole component
  // matches any number of directories. Hidden files and directories, directories that begin with `__`,
  // README.md, config.json and notes of datasets match only if the pattern names them explicitly. Throws
  // Error{input}, with the pattern as its place, if `**` is only a part of a component or the pattern leaves
  // the directory.
  std::vector<std::string> matching(const std::string& pattern);

 private:
  using Parts = std::vector<std::string_view>;
  struct Listing {
    std::vector<std::string> files;  // relative to the listed directory, sorted
    std::vector<Parts> parts;        // views of `files`
  };
  const Listing& listing(const std::string& place, size_t depth);

  std::filesystem::path directory_;
  std::map<std::pair<std::string, size_t>, Listing> listings_;
};

}  // namespace heddle
