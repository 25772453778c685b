// Opens the files of a data set and checks them, before any rank starts.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "heddle/model/family.h"
#include "lib/run/data/token_dataset.h"
#include "lib/run/recipe/sections.h"

namespace heddle {

// A pattern that matches no file.
struct LackingFiles {
  std::string where, what;  // the field; "no file matches 'train*.bin'"
};

// Empty where a pattern matches no file: each is in `lacking`. A file that is named twice is a warning.
// Throws Error{config} where there are not as many files of lengths as of tokens.
std::optional<TokenDataset> open_dataset(const DatasetSection& section, const PackedSection& packed,
                                         int64_t seed, std::vector<LackingFiles>& lacking,
                                         std::vector<std::string>& warnings);

// Throws Error{config} for samples that no row holds and for a reset_attention_at that is not in the data or
// the vocabulary (empty: not known), Error{not_built} for documents where the device does not compute the
// model's attention over them; refused: what of it, empty: nothing.
void check_dataset(const TokenDataset& dataset, const DatasetSection& section, const PackedSection& packed,
                   const std::string& refused, std::optional<int64_t> vocabulary);

// Throws Error{config} for a sample of a pack that is longer than the model's positions.
void check_longest(const TokenDataset& dataset, const DatasetSection& section, const ModelFacts& model);
// "1024 positions", with the model's reason if it has one; and the end of a hint, empty where no key of a
// config.json raises the limit.
std::string positions_text(const ModelFacts& model);
std::string or_more_positions(const ModelFacts& model);

// A warning of samples that are longer than a pack; "": there are none.
std::string left_out_text(const TokenDataset& dataset, const PackedSection& packed);

}  // namespace heddle
