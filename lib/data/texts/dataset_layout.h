// The files of each split of a data set's directory, as the library datasets finds them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "heddle/config/node.h"

namespace heddle {

// A split with its files in the order of its rows. A file that two patterns match is in it twice.
struct SplitFiles {
  std::string split;
  std::vector<std::filesystem::path> files;
  std::optional<int64_t> rows;  // as the card says; empty: it does not
};

struct LayoutQuery {
  std::filesystem::path directory;
  Node name;                 // of the data set, as the recipe names it
  std::string config = {};   // empty: the default, or the only one
  bool is_whole = true;      // false: files of configurations that are not asked for may be missing
  bool takes_config = true;  // whether the recipe's data set has a key for the configuration
};

// Reads the card of the directory, or the names of its files and directories: see docs/texts.md. Splits are
// in the order of the library. Throws MissingData where the directory has no data files, Error{input} where
// datasets refuses it, and where heddle does not read the format.
std::vector<SplitFiles> read_layout(const LayoutQuery& query);

}  // namespace heddle
