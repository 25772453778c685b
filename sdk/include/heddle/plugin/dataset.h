// The kind `dataset`: how a plugin offers a data set.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "heddle/data/dataset.h"
#include "heddle/plugin/offer.h"

namespace heddle {

// Its name and aliases are last words of `dataset._target_`. The fields are the other keys of the section.
struct OfferedDataset : OfferedSchema {
  static constexpr const char* kKind = "dataset";
  std::string length_key;  // the field with the tokens of a row, known before files are opened; empty: none
  std::function<std::unique_ptr<IDataset>(const Node& section, const DataFacts& facts)> make;
};

// A data set that is constructed as Dataset(Config, const Node& section, const DataFacts&); the section is
// for the places of errors. plugin.add(offered_dataset<Mine>("MyDataset", schema())).
template <class Dataset, class Config>
OfferedDataset offered_dataset(std::string name, ConfigSchema<Config> schema, std::string length_key = "") {
  OfferedDataset offered;
  offered.name = std::move(name);
  offered.length_key = std::move(length_key);
  offered.fields = schema.fields();
  offered.resolve = [schema](const Node& section) {
    const Config config = schema.read(section);
    return Resolved{schema.write(config), schema.not_built(config)};
  };
  offered.make = [schema](const Node& section, const DataFacts& facts) -> std::unique_ptr<IDataset> {
    return std::make_unique<Dataset>(schema.read(section), section, facts);
  };
  return offered;
}

}  // namespace heddle
