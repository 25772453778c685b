// Pointers to the newest and the best checkpoint, and removal of older checkpoints.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lib/run/checkpointing/save.h"

namespace heddle {

// On rank 0, before `directory` is published: lets LATEST name `directory`, and LOWEST_VAL too if its loss is
// lower (as in keep()), so that both are right even if this process dies during publishing. Throws Error{io}.
void announce(const CheckpointSection& section, const std::filesystem::path& directory, const Losses& losses);

// On rank 0, after `directory` is published: points LATEST to it. Points LOWEST_VAL to it if its loss on the
// set of best_metric_key is finite and lower than that of the current target. Then removes all checkpoints
// but the newest max_recent_checkpoints and the targets of the pointers. Throws Error{io}; a checkpoint that
// cannot be removed is a warning.
void keep(const CheckpointSection& section, const std::filesystem::path& directory, const Losses& losses,
          const Log& log);

// On rank 0, when a run resumes from a checkpoint: points LATEST to it if it lies in this run's directory, so
// that a restart before the first save resumes from it and not from another branch. Throws Error{io}.
void begin_from(const CheckpointSection& section, const std::filesystem::path& checkpoint);

// On rank 0, when all losses of a published checkpoint are known: updates its losses.json and possibly
// LOWEST_VAL. Does nothing for a checkpoint outside this run's directory. Throws Error{io}.
void amend(const CheckpointSection& section, const std::filesystem::path& directory, const Losses& losses);

// Writes and reads losses.json. A file that cannot be read gives empty losses.
std::string to_json(const Losses& losses);
Losses read_losses(const std::filesystem::path& file);
// Returns the loss of one validation set ("": the unnamed set) from a losses.json; empty if it was not
// measured or is not finite.
std::optional<double> validation_loss(const std::filesystem::path& file, const std::string& set);

// Whether a directory contains nothing but files of an interrupted save or removal.
bool is_unfinished(const std::filesystem::path& directory);
// Returns the directories that are named like unfinished checkpoints, whatever they contain.
std::vector<std::filesystem::path> unfinished_in(const std::filesystem::path& root);

}  // namespace heddle
