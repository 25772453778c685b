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
struct OfferedDataset : OfferedSchema {
  static constexpr const char* kKind = "dataset";
  std::string length_key;  // the field with the tokens of a row, known before files are opened; empty: none
  std::function<std::unique_ptr<IDataset>(const Node& section, const DataFacts& facts)> make;
  std::optional<TextSource> texts;  // `make` is not called then
};

// The name, the fields and how they are read, of any kind of set.
template <class Config>
OfferedDataset described_dataset(std::string name, const ConfigSchema<Config>& schema) {
  OfferedDataset offered;
  offered.name = std::move(name);
  offered.fields = schema.fields();
  offered.resolve = [schema](const Node& section) {
    const Config config = schema.read(section);
    return Resolved{schema.write(config), schema.not_built(config)};
  };
  return offered;
}

// A data set that is constructed as Dataset(Config, const Node& section, const DataFacts&); the section is
// for the places of errors. plugin.add(offered_dataset<Mine>("MyDataset", schema())).
template <class Dataset, class Config>
OfferedDataset offered_dataset(std::string name, ConfigSchema<Config> schema, std::string length_key = "") {
  OfferedDataset offered = described_dataset(std::move(name), schema);
  offered.length_key = std::move(length_key);
  offered.make = [schema](const Node& section, const DataFacts& facts) -> std::unique_ptr<IDataset> {
    return std::make_unique<Dataset>(schema.read(section), section, facts);
  };
  return offered;
}

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

// A data set of texts; the schema's fields are the script's arguments.
template <class Config>
OfferedDataset offered_texts(std::string name, const ConfigSchema<Config>& schema, TextSource texts) {
  OfferedDataset offered = described_dataset(std::move(name), schema);
  offered.make = [](const Node& section, const DataFacts&) -> std::unique_ptr<IDataset> {
    throw Error(ErrorCode::internal, section.where(), "a set of texts is read from its prepared samples");
  };
  offered.texts = std::move(texts);
  return offered;
}

}  // namespace heddle
