// Opens the data of a run before any rank starts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "heddle/model/family.h"
#include "heddle/plugin/registry.h"
#include "lib/data/rows.h"
#include "lib/data/texts/prepared.h"
#include "lib/run/model/prepared_model.h"
#include "lib/run/preflight/findings.h"
#include "lib/run/spec/run_spec.h"

namespace heddle {

// Arguments for opening data sets.
struct DataSource {
  const Recipe& recipe;  // with the values that plugins read from it
  PluginRegistry& plugins;
  PreparationOptions preparation;        // for sets of texts
  const PreparedModel* model = nullptr;  // null: unknown
};

// The training set.
struct TrainingData {
  std::optional<Rows> rows;        // empty: invalid keys, or files that are missing or not prepared
  Shuffle shuffle = Shuffle::off;  // resolved from the recipe and the data set
  bool is_whole = true;            // false: keys are invalid, so only the files were checked
};
// Opens the training set: prepares texts, packs samples and checks them. Throws Error.
TrainingData open_training(const DataSource& run, Findings& found);

// Returns the model with the tokenizer, chat template and end tokens of this data for its exports. Throws
// Error.
PreparedModel with_tokens_of(const TrainingData& data, PreparedModel model, const DataSource& run,
                             Findings& found);

// Opens a validation set; empty as TrainingData::rows. `training`: null if unknown. Throws Error.
std::optional<ValidationSet> open_validation(const DatasetSection& section, const Rows* training,
                                             const DataSource& run, Findings& found);

// Throws Error{config} for packs that contain no sample or exclude one, and for a sample longer than the
// model's maximum positions (empty model: unknown). Throws Error{plugin_failed} for a set that violates its
// own declarations.
void check_rows(const Rows& rows, const DatasetSection& section, const PackedSection& packed,
                const std::optional<ModelFacts>& model);

// Returns "1024 positions", with the model's reason if there is one. or_more_positions() returns the end of a
// hint; empty if no key of a config.json raises the limit.
std::string positions_text(const ModelFacts& model);
std::string or_more_positions(const ModelFacts& model);

// Warns of texts whose labels contain no stop token: the tokenizer's end token or one of `stops`. Reads the
// first samples, up to a million tokens. "": a sample has one, or no stop token is known.
std::string untrained_end_text(const Rows& rows, const DatasetSection& section, std::vector<int64_t> stops);

}  // namespace heddle
