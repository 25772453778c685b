// Files of a data set of texts: local files, or those of a hub data set.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "heddle/config/node.h"

namespace heddle {

// value of TextQuery::split: every split, in the data set's order
inline constexpr const char* kAllSplits = "all";

struct TextFiles {
  // By split, sorted by name; "" for files that are named directly, which are in every split.
  std::map<std::string, std::vector<std::filesystem::path>> of_split;
  // Splits of the data set in order; empty for files that are named directly.
  std::vector<std::string> splits;
  std::map<std::string, int64_t> rows;  // of splits whose number of rows the card gives
  // JSON files that are named directly, for which NeMo AutoModel needs no split.
  bool is_local = false;
};

// Request for the files of a data set.
struct TextQuery {
  Node name;                 // a file, a directory, a hub name, or a list of files
  std::string split;         // "train[:100]+validation"; empty or kAllSplits: all
  std::string config;        // empty: the default configuration, or the only one
  std::string revision;      // hub revision; empty: main
  bool takes_config = true;  // whether the recipe's data set has the key `name`
};

// Throws MissingData for a missing file or data set, and Error{input} for an unknown split or configuration.
TextFiles find_texts(const TextQuery& query);

// Returns the splits in an expression: "train" and "validation" of "train[:100]+validation[:10%]".
std::vector<std::string> splits_in(const std::string& expression);

}  // namespace heddle
