// The kind `dataset`: how a plugin offers a data set.
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

// A set of texts: rows that a script turns into tokens once, in a Python process before the first step.
// heddle keeps the samples in a file and reads them from there; docs/plugins/dataset.md describes the script.
struct TextSource {
  std::string script;  // "squad.py", in the directory of the plugin's library
  // Fields with a file, a directory, a name of the hub, or a list of files; the first that is set. The fields
  // `split`, `name` and `revision`, where there are, choose in it. Empty: the script makes its rows itself.
  std::vector<std::string> source_keys;
  // Those of them whose local JSON files are read whole whatever `split` says, as NeMo AutoModel does.
  std::vector<std::string> whole_keys = {};
};

// Its name and aliases are last words of `dataset._target_`. The fields are the other keys of the section.
// plugin.dataset<Mine>("MyDataset", schema()), plugin.texts("MyTexts", schema(), {"mine.py", {"path"}}).
struct OfferedDataset : OfferedSchema {
  static constexpr const char* kKind = "dataset";
  std::string length_key;  // the field with the tokens of a row, known before files are opened; empty: none
  std::function<std::unique_ptr<IDataset>(const Node& section, const DataFacts& facts)> make;
  std::optional<TextSource> texts;  // `make` is not called then
  // The `make` of texts: throws Error{internal}.
  static std::unique_ptr<IDataset> unprepared(const Node& section, const DataFacts&) {
    throw Error(ErrorCode::internal, section.where(), "a set of texts is read from its prepared samples");
  }
};

// Adds the fields that tools.prompt_and_answer(), tools.chat() and tools.fill() of a script read, for a
// Config with members of these names.
template <class Config>
ConfigSchema<Config> with_row_fields(ConfigSchema<Config> schema) {
  return schema
      .field("seq_length", &Config::seq_length, "Tokens of a row, for truncation and padding.",
             at_least<int64_t>(1))
      .field("truncation", &Config::truncation, "true or longest_first cuts rows at seq_length.")
      .field("padding", &Config::padding,
             "max_length: rows count as seq_length tokens in a pack. Others: no effect.");
}

}  // namespace heddle
