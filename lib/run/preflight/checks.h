// Checks of a recipe's sections against the model and against each other.
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

// Throws Error{config} if rows are longer than the model's maximum positions.
void check_length(const DatasetSection& section, const ModelFacts& model);

// Throws Error{config} because dropping incomplete microbatches leaves no validation sample.
[[noreturn]] void refuse_none_left(const DatasetSection& section, int64_t samples);

// Throws Error{not_built} if pipeline or context parallelism has several ranks.
void check_samples(const SamplesSection& section, const Sizes& sizes);

// Returns the tokenizer directory for the prompts, the data's or the model's; empty: tokens are bytes. Throws
// Error{config} if there is none, and for chat with bytes.
std::filesystem::path samples_tokenizer(const SamplesSection& section, const DataTokenizer& data,
                                        const PreparedModel& model);

// Throws Error{config} if the data has a tokenizer's tokens and the model was trained on bytes of text.
void check_byte_model(const DataTokenizer& data, const DatasetSection& section, const PreparedModel& model);

// Throws Error{config} if a validation set is known to use another tokenizer than the training set.
void check_one_tokenizer(const IDataset& training, const IDataset& validation, const DatasetSection& section);

bool overlaps(const ScheduleTable& table);

// Throws Error{config} if checkpoints could not be published by a rename, which works within one file system
// only.
void check_staging(const CheckpointSection& section);

// Throws Error{config} for an entry of param_group_overrides without trained parameters: its pattern matches
// no name, only frozen parameters, or only parameters of earlier entries. Called after freezing.
void check_groups(Units& units, const OptimizerSection& optimizer);

// Throws Error{config} for a global batch with more rows than an epoch. packed: number of samples packed into
// the rows; 0: each row is a sample.
void check_batch(const StepSection& steps, int64_t rows, int64_t packed = 0);

// Returns a warning if val_every_steps is set without a validation set; "": none.
std::string no_validation_text(const Recipe& recipe);

// Warnings of a run: no validation set is the default, all steps are done without an export, and the learning
// rate differs from that of the run that saved the checkpoint. "": none.
std::string no_best_text(const RunSpec& run);
std::string no_export_text(const RunSpec& run);
std::string another_rate_text(const RunSpec& run);

// Throws Error{config} for a recipe without a data set.
void require_data(const Node& configuration);

}  // namespace heddle
