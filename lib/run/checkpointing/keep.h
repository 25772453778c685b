// What a published checkpoint changes beside it: the pointers to the newest and the best, and which older
// ones stay.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lib/run/checkpointing/save.h"

namespace heddle {

// On rank 0, before `directory` is published: from the moment it is there LATEST names it, and LOWEST_VAL
// where its loss is lower, as for keep(), whatever becomes of this process then. Throws Error{io}.
void announce(const CheckpointSection& section, const std::filesystem::path& directory, const Losses& losses);

// On rank 0, once `directory` is published: LATEST points to it; LOWEST_VAL too where its loss on the set of
// best_metric_key is finite and lower than that of the checkpoint it points to; then all but the newest
// max_recent_checkpoints and what the pointers name go. Throws Error{io}; what cannot be removed is a
// warning.
void keep(const CheckpointSection& section, const std::filesystem::path& directory, const Losses& losses,
          const Log& log);

// On rank 0, once a run resumes from a checkpoint: LATEST points to it where it lies in this run's directory.
// What is started again before it has saved then resumes from there, not from another branch. Throws
// Error{io}.
void begin_from(const CheckpointSection& section, const std::filesystem::path& checkpoint);

// On rank 0: the losses of a published checkpoint are all known now. Its losses.json says so, and LOWEST_VAL
// may point to it. One that is not in this run's directory stays as it is. Throws Error{io}.
void amend(const CheckpointSection& section, const std::filesystem::path& directory, const Losses& losses);

// The text of losses.json, and what such a file says; nothing where it cannot be read.
std::string to_json(const Losses& losses);
Losses read_losses(const std::filesystem::path& file);
// The loss of one validation set ("": the one without a name) in a losses.json; empty: it was not measured,
// or is not finite.
std::optional<double> validation_loss(const std::filesystem::path& file, const std::string& set);

// Whether a directory holds what an interrupted save or removal leaves, if anything.
bool is_unfinished(const std::filesystem::path& directory);
// The directories with a name of unfinished checkpoints, whatever they hold.
std::vector<std::filesystem::path> unfinished_in(const std::filesystem::path& root);

}  // namespace heddle
