// The data of a run, from its sections to rows, before any rank starts.
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

// What data sets are opened with.
struct DataSource {
  const Recipe& recipe;  // with what plugins read of it
  PluginRegistry& plugins;
  PreparationOptions preparation;        // of sets of texts
  const PreparedModel* model = nullptr;  // null: not known
};

// The training set.
struct TrainingData {
  std::optional<Rows> rows;        // empty: keys are wrong, the files are not here, or are not prepared
  Shuffle shuffle = Shuffle::off;  // as the recipe and the set have it together
  bool is_whole = true;            // false: keys are wrong, and its files alone were looked for
};
// Opens the set, which prepares one of texts, packs its samples, and checks them. Throws Error.
TrainingData open_training(const DataSource& run, Findings& found);

// The model that learns the tokens of this data: its exports have their tokenizer, chat template and end
// tokens. Throws Error.
PreparedModel with_tokens_of(const TrainingData& data, PreparedModel model, const DataSource& run,
                             Findings& found);

// A validation set; empty as for TrainingData::rows. `training`: null where it is not known. Throws Error.
std::optional<ValidationSet> open_validation(const DatasetSection& section, const Rows* training,
                                             const DataSource& run, Findings& found);

// Throws Error{config} for packs that hold no sample or refuse one, for a sample that is longer than the
// model's positions (model empty: not known); Error{plugin_failed} for a set that breaks its own rules.
void check_rows(const Rows& rows, const DatasetSection& section, const PackedSection& packed,
                const std::optional<ModelFacts>& model);

// "1024 positions", with the model's reason if it has one; and the end of a hint, empty where no key of a
// config.json raises the limit.
std::string positions_text(const ModelFacts& model);
std::string or_more_positions(const ModelFacts& model);

// A warning of texts whose labels have none of the tokens after which generation stops: the tokenizer's end
// token and `stops`. It reads the first samples, up to a million tokens. "": a sample has one, or no token is
// known.
std::string untrained_end_text(const Rows& rows, const DatasetSection& section, std::vector<int64_t> stops);

}  // namespace heddle
