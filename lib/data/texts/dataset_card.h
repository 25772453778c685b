// Configurations of a data set, from README.md and .huggingface.yaml.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

// File patterns of each split, in order.
using SplitPatterns = std::vector<std::pair<std::string, std::vector<std::string>>>;

struct DatasetConfig {
  std::string name;
  std::string data_dir;  // directory to which patterns are relative; empty: the data set's directory
  std::optional<SplitPatterns> files;  // empty: splits follow from file and directory names
  bool is_default = false;             // marked as the default configuration
};

using RowCounts = std::map<std::string, std::optional<int64_t>>;  // number of rows per split; empty: unknown

struct DatasetCard {
  std::vector<DatasetConfig> configs;         // empty: the data set has no configurations
  std::optional<std::string> default_config;  // used if none is requested
  std::map<std::string, RowCounts> rows;      // from dataset_info, by configuration
};

// Reads the front matter of README.md, and .huggingface.yaml, whose keys take precedence. Throws Error{input}
// if the library datasets refuses the card, and for keys of a configuration that change what is read from its
// files.
DatasetCard read_card(const std::filesystem::path& directory);

// Whether datasets accepts the word as a split name: letters, digits and _, in parts separated by dots.
bool is_split_name(const std::string& name);

}  // namespace heddle
