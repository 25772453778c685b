// What a recipe's sections allow of the model and of each other.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "heddle/config/axes.h"
#include "heddle/data/dataset.h"
#include "heddle/model/family.h"
#include "heddle/model/unit.h"
#include "heddle/schedule/schedule.h"
#include "lib/run/model/prepared_model.h"
#include "lib/run/recipe/recipe.h"
#include "lib/run/spec/run_spec.h"

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

// Throws Error{config} for an entry of param_group_overrides that no parameter is trained by: its pattern
// matches no name, frozen parameters only, or only those of entries before it. After freezing.
void check_groups(Units& units, const OptimizerSection& optimizer);

// Throws Error{config} for a global batch of more rows than an epoch has. packed: the samples that the rows
// are packs of; 0: each row is a sample.
void check_batch(const StepSection& steps, int64_t rows, int64_t packed = 0);

// A warning of val_every_steps without a validation set; "": none.
std::string no_validation_text(const Recipe& recipe);

// Warnings of a run: no validation set is the default, all steps are done without an export, the learning
// rate is another than the run that saved the checkpoint would have used. "": there is nothing to warn of.
std::string no_best_text(const RunSpec& run);
std::string no_export_text(const RunSpec& run);
std::string another_rate_text(const RunSpec& run);

// Throws Error{config} for a recipe without a data set.
void require_data(const Node& configuration);

}  // namespace heddle
