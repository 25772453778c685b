// The files of a data set of texts: local ones, or those of a data set of the hub.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "heddle/config/node.h"

namespace heddle {

inline constexpr const char* kAllSplits = "all";  // TextQuery::split: every split, in the data set's order

struct TextFiles {
  // By split, in the order of their names; "" for files that are named themselves, which are every split.
  std::map<std::string, std::vector<std::filesystem::path>> of_split;
  // The splits of the data set, in its order; empty for files that are named themselves.
  std::vector<std::string> splits;
  std::map<std::string, int64_t> rows;  // of splits whose number of rows the data set's card says
  // JSON files that are named themselves: NeMo AutoModel asks for no split there.
  bool is_local = false;
};

// What is asked of a data set.
struct TextQuery {
  Node name;                 // a file, a directory, a name of the hub, or a list of files
  std::string split;         // "train[:100]+validation"; empty or kAllSplits: all
  std::string config;        // of several in one data set; empty: the default, or the only one
  std::string revision;      // of the hub; empty: main
  bool takes_config = true;  // whether the recipe's data set has the key `name`
};

// Throws MissingData where a file or a data set is not there, Error{input} where it has no such split or
// configuration.
TextFiles find_texts(const TextQuery& query);

// The splits that an expression names: "train" and "validation" of "train[:100]+validation[:10%]".
std::vector<std::string> splits_in(const std::string& expression);

}  // namespace heddle
