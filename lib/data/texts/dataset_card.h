// What README.md and .huggingface.yaml of a data set say of its configurations.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

// Patterns of the files of each split, in their order.
using SplitPatterns = std::vector<std::pair<std::string, std::vector<std::string>>>;

struct DatasetConfig {
  std::string name;
  std::string data_dir;                // patterns begin there; empty: at the data set's directory
  std::optional<SplitPatterns> files;  // empty: names of files and directories say the splits
  bool is_default = false;             // marked as the one that is used where none is asked for
};

using RowCounts = std::map<std::string, std::optional<int64_t>>;  // rows of each split; empty: not said

struct DatasetCard {
  std::vector<DatasetConfig> configs;         // empty: the data set has no configurations
  std::optional<std::string> default_config;  // used where none is asked for
  std::map<std::string, RowCounts> rows;      // of dataset_info, by configuration
};

// Reads the front matter of README.md, and .huggingface.yaml, whose keys win. Throws Error{input} where the
// library datasets refuses the card, and for keys of a configuration that change what is read of its files.
DatasetCard read_card(const std::filesystem::path& directory);

// Whether datasets takes the word for a split's name: letters, digits and _, in parts with dots between.
bool is_split_name(const std::string& name);

}  // namespace heddle
