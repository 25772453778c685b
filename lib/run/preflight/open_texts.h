// Prepares or finds the samples of a set of texts, before ranks connect.
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

// Thrown for a set that is not prepared and must not be. `rows`: number of rows that were converted without
// an error; empty: none, because Python is missing.
class NotPrepared : public Error {
 public:
  NotPrepared(const std::string& where, const std::string& name, std::optional<int64_t> rows);
};

// Shared state of all sets of texts of a run.
class TextSets {
 public:
  TextSets(const Recipe& recipe, PluginRegistry& plugins, const PreparationOptions& preparation)
      : recipe_(recipe), plugins_(plugins), preparation_(preparation) {}

  // Prepares the samples. Throws NotPrepared, MissingData for missing texts and tokenizers, and the script's
  // errors.
  PreparedFile prepare(const DatasetSection& section) const;
  std::unique_ptr<IDataset> open(const DatasetSection& section, const DataFacts& facts) const;
  // Returns what is known of the texts before their samples exist. Throws as open(), except for the script's
  // errors.
  TextsOfRun of_run(const DatasetSection& section) const;
  // Returns the tokenizer of the training set, or else of the model.
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

// Prepares every set of texts of a recipe. Only the tokenizer of the recipe's model must be on this machine.
// Throws Error, together with the errors that the recipe holds.
std::vector<PreparedFile> prepare_texts(const Recipe& recipe, PluginRegistry& plugins,
                                        const PreparationOptions& preparation);

}  // namespace heddle
