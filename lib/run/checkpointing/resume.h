// Finds the checkpoint to resume from, checks that it fits, and fills model and optimizer.
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

// Returns the complete checkpoints (epoch_E_step_S) in a directory, sorted by step.
std::vector<std::filesystem::path> checkpoints_in(const std::filesystem::path& directory);

// Returns the checkpoint that checkpoint.restore_from names. null means LATEST; a LATEST of another model is
// skipped with a warning. If LATEST names no complete checkpoint, returns the complete one with the most
// steps and warns. Warns too if checkpoints with more steps than LATEST exist, and if LATEST or LOWEST_VAL is
// named but does not exist. Throws Error{input} if a name or a path does not exist, and Error{config} if the
// data differs.
std::optional<Resume> find_checkpoint(const RunSpec& run, std::vector<std::string>& warnings);

// Returns the directory of the checkpoint that the run would resume from, without reading its contents;
// empty: none. Throws as find_checkpoint().
std::filesystem::path place_to_resume(const CheckpointSection& section, std::vector<std::string>& warnings);

// Called before texts are prepared: throws Error{config} if the run would resume from a checkpoint that was
// trained on different texts or with another tokenizer.
void check_texts(const CheckpointSection& section, const ModelSpec& model,
                 const std::function<TextsOfRun()>& texts);

// Returns why a checkpoint belongs to another model ("hidden_size was 24, now 32"); "" if it belongs to this
// model or this is unknown.
std::string other_model(const std::filesystem::path& checkpoint, const RunSpec& run);

// Returns the name of the newest checkpoint of this run's model in checkpoint_dir; "": none.
std::string newest_of_this_model(const RunSpec& run);

// Whether the saved run stopped before it measured this validation set, which was due after its last step.
bool owes_validation(const RunSpec& run, const std::string& set);

// Returns the position of the run after step `info`.
Position position_after(const RunSpec& run, const StepInfo& info);

// This rank's boxes of the model and of the optimizer state ("exp_avg.NAME", "exp_avg_sq.NAME", "step.NAME",
// "master.NAME").
using checkpoint::model_parts;
using engine::optimizer_parts;

// Fills model and optimizer from the checkpoint that the run resumes from, whatever its topology. Parameters
// that checkpoints leave out keep their values. A collective; throws Error{input} on every rank.
void restore(const RunSpec& run, engine::Model& model, Step& step);

}  // namespace heddle
