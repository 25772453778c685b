// Preparation job: texts, a script and a tokenizer.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "heddle/config/node.h"
#include "heddle/data/dataset.h"
#include "lib/data/texts/text_files.h"

namespace heddle {

// Tokenizer of a data set, as given in the recipe.
struct TextTokenizer {
  std::filesystem::path directory;  // empty: none
  bool is_nemo = true;              // NeMoAutoTokenizer; false: AutoTokenizer of transformers
  Node arguments = Node::map({});   // other keys of the section
};

struct TextJob {
  std::string name;              // name of the data set: "make_squad_dataset"
  std::filesystem::path script;  // the format module
  Node arguments;                // arguments of the script with defaults
  TextTokenizer tokenizer;
  std::vector<std::string> source_keys;  // arguments that name texts; their values are not part of the key
  std::string source;                    // as given; empty: none
  TextFiles files;
  bool apply_split = false;  // apply the split to local JSON files too
  std::string date;          // result of a template's strftime_now: "2026-11-24"
  bool is_dated = false;     // the date is given in the recipe
  std::string where;         // place of the section, for messages
  Node section;              // as given
};

// Returns a text with everything that determines the samples: arguments and checksums of files. Jobs with
// equal keys share a file. notes: file that caches checksums of large files; empty: no cache.
std::string key_of(const TextJob& job, const std::filesystem::path& notes);

// Returns a checksum of the contents of the text files alone.
std::string texts_checksum(const TextJob& job, const std::filesystem::path& notes);
// Returns a checksum of tokenizer.json; "": no tokenizer.
std::string tokenizer_checksum(const TextTokenizer& tokenizer);

// Returns the message for the script; see heddle_prepare.py. texts: texts_checksum().
nlohmann::json message_of(const TextJob& job, const std::string& key, const std::string& texts,
                          const std::filesystem::path& out, int jobs);

// Returns the files that no output of the run may replace.
std::vector<DataInput> inputs_of(const TextJob& job);

}  // namespace heddle
