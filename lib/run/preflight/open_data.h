// From the section of a data set to its rows, before any rank starts.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "heddle/model/family.h"
#include "heddle/plugin/dataset.h"
#include "heddle/plugin/registry.h"
#include "lib/data/rows.h"
#include "lib/run/recipe/recipe.h"

namespace heddle {

// The data set of this name: of heddle itself, or of a plugin. Null: there is none.
const OfferedDataset* find_dataset(PluginRegistry& plugins, const std::string& name);
std::vector<std::string> dataset_names(const PluginRegistry& plugins);

// Reads the keys of a set that a plugin offers, and the length of its rows where they say it; those of token
// files are read with the recipe. Throws Error{config} for a set that nothing offers, and for its keys.
void read_dataset(DatasetSection& section, PluginRegistry& plugins, std::vector<std::string>& not_built);

// The set as a benchmark reads it: where it has the keys vocab_size and batch_size, they are the model's and
// that of a microbatch. Throws Error{config} for rows without one length.
DatasetSection for_benchmark(DatasetSection section, PluginRegistry& plugins, const DataFacts& facts);

// The keys that every set of texts has beside its plugin's fields.
std::vector<FieldInfo> text_key_fields();

// Opens the set, which prepares one of texts, and packs its samples. Throws MissingData where its files are
// not there, NotPrepared, and what the set throws.
Rows open_dataset(const DatasetSection& section, const Recipe& recipe, const PackedSection& packed,
                  PluginRegistry& plugins, const DataFacts& facts);

// Throws Error{config} for packs that hold no sample or refuse one, for a sample that is longer than the
// model's positions (model empty: not known); Error{plugin_failed} for a set that breaks its own rules.
void check_rows(const Rows& rows, const DatasetSection& section, const PackedSection& packed,
                const std::optional<ModelFacts>& model);

// "1024 positions", with the model's reason if it has one; and the end of a hint, empty where no key of a
// config.json raises the limit.
std::string positions_text(const ModelFacts& model);
std::string or_more_positions(const ModelFacts& model);

// A warning of a tokenizer that has more tokens than the model; "": it has not.
std::string larger_tokenizer_text(const Rows& rows, const DatasetSection& section, const ModelFacts& model);

// A warning of texts whose labels have none of the tokens after which generation stops: the tokenizer's end
// token and `stops`. It reads the first samples, up to a million tokens. "": a sample has one, or no token is
// known.
std::string untrained_end_text(const Rows& rows, const DatasetSection& section, std::vector<int64_t> stops);

// A warning of samples that are longer than a pack; "": there are none.
std::string left_out_text(const Rows& rows);

}  // namespace heddle
