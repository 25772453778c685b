// Files of each split in a data set's directory, as the library datasets finds them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "heddle/config/node.h"

namespace heddle {

// A split with its files in row order. A file that two patterns match is listed twice.
struct SplitFiles {
  std::string split;
  std::vector<std::filesystem::path> files;
  std::optional<int64_t> rows;  // from the card; empty: unknown
};

struct LayoutQuery {
  std::filesystem::path directory;
  Node name;                 // name of the data set, as in the recipe
  std::string config = {};   // configuration; empty: the default, or the only one
  bool is_whole = true;      // false: files of other configurations may be missing
  bool takes_config = true;  // whether the recipe's data set has a key for the configuration
};

// Reads the card of the directory, or the names of its files and directories (see docs/reference/data.md).
// Splits are in the order of the library. Throws MissingData if the directory has no data files, and
// Error{input} if datasets refuses it or heddle does not read the format.
std::vector<SplitFiles> read_layout(const LayoutQuery& query);

}  // namespace heddle
