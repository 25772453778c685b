// What a recipe's sections allow of the model and of each other.
#pragma once

#include <cstdint>
#include <filesystem>

#include "heddle/config/axes.h"
#include "heddle/data/dataset.h"
#include "heddle/model/family.h"
#include "heddle/schedule/schedule.h"
#include "lib/run/model/prepared_model.h"
#include "lib/run/recipe/recipe.h"

namespace heddle {

// Throws Error{config} where rows are longer than the model's positions.
void check_length(const DatasetSection& section, const ModelFacts& model);

// Throws Error{config}: dropping the last rows leaves no validation sample.
[[noreturn]] void refuse_none_left(const DatasetSection& section, int64_t samples);

// Throws Error{not_built} where stages or parts of sequences on several ranks compute the model.
void check_samples(const SamplesSection& section, const Sizes& sizes);

// The directory of the tokenizer of the prompts, the data's or the model's; empty: their tokens are bytes.
// Throws Error{config} where there is none, and for a chat in bytes.
std::filesystem::path samples_tokenizer(const SamplesSection& section, const DataTokenizer& data,
                                        const PreparedModel& model);

// Throws Error{config} where the data holds a tokenizer's tokens and the model was trained on bytes of text.
void check_byte_model(const DataTokenizer& data, const DatasetSection& section, const PreparedModel& model);

// Throws Error{config} where a validation set is known to have another tokenizer than the training set.
void check_one_tokenizer(const IDataset& training, const IDataset& validation, const DatasetSection& section);

bool overlaps(const ScheduleTable& table);

// Throws Error{config} where a checkpoint could not be published by renaming it, which a file system does
// only within itself.
void check_staging(const CheckpointSection& section);

}  // namespace heddle
