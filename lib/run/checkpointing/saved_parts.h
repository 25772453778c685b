// What a checkpoint holds of a model that transforms have changed.
#pragma once

#include <filesystem>
#include <vector>

#include "heddle/checkpoint/sharded.h"
#include "heddle/parallel/stages.h"
#include "lib/run/spec/run_spec.h"

namespace heddle {

// This rank's boxes of the model, without those of PreparedModel::elsewhere().
std::vector<checkpoint::Part> saved_parts(const RunSpec& run, Stages& stages);

// The files of what transforms added (PreparedModel::added_files()) and the tokenizer beside them, from the
// sharded files in `directory`, where they are put; nothing where there are none. On rank 0. Throws
// Error{io | input}.
void write_added(const PreparedModel& model, const std::filesystem::path& directory);

}  // namespace heddle
