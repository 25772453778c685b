// Going on from a checkpoint: which one, whether it fits, and filling model and optimizer from it.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "heddle/checkpoint/sharded.h"
#include "heddle/engine/engine.h"
#include "lib/run/checkpointing/data_order.h"
#include "lib/run/model/checkpoint_name.h"
#include "lib/run/spec/run_spec.h"

namespace heddle {

// Complete checkpoints under a directory (epoch_E_step_S), by their steps.
std::vector<std::filesystem::path> checkpoints_in(const std::filesystem::path& directory);

// What checkpoint.restore_from names, for a run of this model and data. Null: as LATEST, unless that is of
// another model, which is a warning. LATEST that names nothing whole: the complete one with the most steps,
// and a warning; so it is where there are others of more steps. LATEST and LOWEST_VAL where there is none: a
// warning. Throws Error{input} when a name or a path is not there, and Error{config} when the data are
// others.
std::optional<Resume> find_checkpoint(const RunSpec& run, std::vector<std::string>& warnings);

// The directory of the checkpoint that a run would resume from, whatever is in it; empty: none. Throws as
// find_checkpoint().
std::filesystem::path place_to_resume(const CheckpointSection& section, std::vector<std::string>& warnings);

// Before texts are prepared: throws Error{config} where the run would resume from a checkpoint that was
// trained on others, or with another tokenizer.
void check_texts(const CheckpointSection& section, const ModelSpec& model,
                 const std::function<TextsOfRun()>& texts);

// "hidden_size was 24, now 32": why a checkpoint is not of this run's model. "" where it is, or
// cannot be known.
std::string other_model(const std::filesystem::path& checkpoint, const RunSpec& run);

// The name of the newest checkpoint in checkpoint_dir that is of this run's model; "": there is none.
std::string newest_of_this_model(const RunSpec& run);

// Whether the run that saved what this one resumes from was ended before it had measured this validation set,
// due after its last step.
bool owes_validation(const RunSpec& run, const std::string& set);

// Where the run stands after `info`.
Position position_after(const RunSpec& run, const StepInfo& info);

// This rank's boxes of the model and of the optimizer's state ("exp_avg.NAME", "exp_avg_sq.NAME",
// "step.NAME", "master.NAME").
using checkpoint::model_parts;
using engine::optimizer_parts;

// Fills both from the checkpoint that the run resumes from, of any topology; what checkpoints leave out has
// its values already. A collective; throws Error{input} on every rank.
void restore(const RunSpec& run, engine::Model& model, Step& step);

}  // namespace heddle
