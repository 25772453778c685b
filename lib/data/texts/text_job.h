// What a preparation is asked for: texts, a script and a tokenizer.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "heddle/config/node.h"
#include "heddle/data/dataset.h"
#include "lib/data/texts/text_files.h"

namespace heddle {

// The tokenizer of a data set, as the recipe names it.
struct TextTokenizer {
  std::filesystem::path directory;  // empty: none
  bool is_nemo = true;              // NeMoAutoTokenizer; false: transformers' AutoTokenizer
  Node arguments = Node::map({});   // its other keys
};

struct TextJob {
  std::string name;              // of the data set: "make_squad_dataset"
  std::filesystem::path script;  // the format module
  Node arguments;                // of the script, with their defaults
  TextTokenizer tokenizer;
  std::vector<std::string> source_keys;  // arguments that name texts: which is set counts, not its value
  std::string source;                    // as it is written; empty: none
  TextFiles files;
  bool apply_split = false;  // of local JSON files too
  std::string date;          // what a template's strftime_now sees: "2026-11-24"
  bool is_dated = false;     // the date was given
  std::string where;         // the section, for messages
  Node section;              // as it is written
};

// What the samples are a function of, in words: arguments, and checksums of the files. Two jobs with one key
// make one file. notes: a file that remembers checksums of large files; empty: none is remembered.
std::string key_of(const TextJob& job, const std::filesystem::path& notes);

// A checksum of the content of the files of texts alone.
std::string texts_checksum(const TextJob& job, const std::filesystem::path& notes);
// Of the tokenizer's tokenizer.json; "": there is no tokenizer.
std::string tokenizer_checksum(const TextTokenizer& tokenizer);

// The message that the script gets; see heddle_prepare.py. texts: texts_checksum().
nlohmann::json message_of(const TextJob& job, const std::string& key, const std::string& texts,
                          const std::filesystem::path& out, int jobs);

// Files that no output of the run may replace.
std::vector<DataInput> inputs_of(const TextJob& job);

}  // namespace heddle
