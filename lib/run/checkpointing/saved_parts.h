// Parts of a transformed model that a checkpoint contains.
#pragma once

#include <filesystem>
#include <vector>

#include "heddle/checkpoint/sharded.h"
#include "heddle/parallel/stages.h"
#include "lib/run/spec/run_spec.h"

namespace heddle {

// Returns this rank's boxes of the model, without those of PreparedModel::elsewhere().
std::vector<checkpoint::Part> saved_parts(const RunSpec& run, Stages& stages);

// Writes the files of added parameters (PreparedModel::added_files()) and the tokenizer files into
// `directory`, from the sharded files there. Does nothing if no transform adds parameters. On rank 0. Throws
// Error{io | input}.
void write_added(const PreparedModel& model, const std::filesystem::path& directory);

}  // namespace heddle
