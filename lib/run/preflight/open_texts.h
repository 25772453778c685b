// From the section of a set of texts to its samples: prepared before ranks meet, or found.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "heddle/plugin/dataset.h"
#include "heddle/plugin/registry.h"
#include "lib/data/texts/prepared.h"
#include "lib/run/checkpointing/data_order.h"
#include "lib/run/recipe/recipe.h"

namespace heddle {

// Thrown for a set that is not prepared, where it is not to be. `rows`: how many of its first ones were
// converted without a fault; empty: none, as Python is not there.
class NotPrepared : public Error {
 public:
  NotPrepared(const std::string& where, const std::string& name, std::optional<int64_t> rows);
};

// What all sets of texts of a run share.
class TextSets {
 public:
  TextSets(const Recipe& recipe, PluginRegistry& plugins, const PreparationOptions& preparation)
      : recipe_(recipe), plugins_(plugins), preparation_(preparation) {}

  // Throws NotPrepared, MissingData for texts and tokenizers that are not there, and what the script refuses.
  PreparedFile prepare(const DatasetSection& section) const;
  std::unique_ptr<IDataset> open(const DatasetSection& section, const DataFacts& facts) const;
  // What is known of its texts before its samples are there. Throws as open(), but for what the script
  // refuses.
  TextsOfRun of_run(const DatasetSection& section) const;
  // The training set's; else the model's.
  TextTokenizer tokenizer() const;

 private:
  PreparedFile prepared(const TextJob& job) const;
  TextJob job_of(const DatasetSection& section) const;
  std::vector<std::filesystem::path> places() const;
  std::filesystem::path script_of(const DatasetSection& section, const std::string& name) const;

  const Recipe& recipe_;
  PluginRegistry& plugins_;
  const PreparationOptions& preparation_;
};

// Prepares every set of texts of a recipe; its model may be another machine's but for its tokenizer. Throws
// Error, with those that the recipe has kept.
std::vector<PreparedFile> prepare_texts(const Recipe& recipe, PluginRegistry& plugins,
                                        const PreparationOptions& preparation);

}  // namespace heddle
