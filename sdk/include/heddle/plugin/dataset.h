// OfferedDataset, the plugin kind `dataset`.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "heddle/data/dataset.h"
#include "heddle/plugin/offer.h"

namespace heddle {

// Texts that a script tokenizes once, in a Python process before the first step. heddle caches the samples in
// a file and reads them from there. docs/plugins/dataset.md describes the script.
struct TextSource {
  std::string script;  // "squad.py", in the directory of the plugin's library
  // Fields that name a file, a directory, a repository of the hub, or a list of files; the first field that
  // is set is used. The fields `split`, `name` and `revision`, if they exist, select within it. Empty: the
  // script creates its rows itself.
  std::vector<std::string> source_keys;
  // The source_keys whose local JSON files are read completely whatever `split` says, as in NeMo AutoModel.
  std::vector<std::string> whole_keys = {};
};

// A data set. Its name and aliases match the last component of `dataset._target_`. The fields are the other
// keys of the section. plugin.dataset<Mine>("MyDataset", schema()) offers a class with the constructor
// Mine(Config, const Node& section, const DataFacts&); plugin.texts("MyTexts", schema(), {"mine.py",
// {"path"}}) offers tokenized texts, whose fields are the arguments of the script.
struct OfferedDataset : OfferedSchema {
  static constexpr const char* kKind = "dataset";
  // Field with the row length in tokens, read before files are opened; empty: no such field.
  std::string length_key;
  std::function<std::unique_ptr<IDataset>(const Node& section, const DataFacts& facts)> make;
  std::optional<TextSource> texts;  // if set, `make` is not called
  // The `make` of an offer with `texts`. Throws Error{internal}.
  static std::unique_ptr<IDataset> unprepared(const Node& section, const DataFacts&) {
    throw Error(ErrorCode::internal, section.where(), "a set of texts is read from its prepared samples");
  }
};

// Adds the fields that tools.prompt_and_answer(), tools.chat() and tools.fill() of a script read. Config has
// members with these names.
template <class Config>
ConfigSchema<Config> with_row_fields(ConfigSchema<Config> schema) {
  return schema
      .field("seq_length", &Config::seq_length, "Row length in tokens, for truncation and padding.",
             at_least<int64_t>(1))
      .field("truncation", &Config::truncation,
             "Truncation of rows to seq_length. true and longest_first enable it.")
      .field("padding", &Config::padding,
             "max_length counts each row as seq_length tokens in a pack. Other values have no effect.");
}

}  // namespace heddle
