// What a checkpoint holds of a model that transforms have changed.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "heddle/checkpoint/sharded.h"
#include "heddle/parallel/stages.h"
#include "lib/run/spec/run_spec.h"

namespace heddle {

// This rank's boxes of the model, without those of PreparedModel::elsewhere().
std::vector<checkpoint::Part> saved_parts(const RunSpec& run, Stages& stages);

// The parameters that transforms added, by their names.
std::vector<std::string> added_names(const PreparedModel& model);

// The files of what was added, from the sharded files in `directory`, where they are put. On rank 0. Throws
// Error{io | input}.
void write_added(const AddedFiles& files, const std::vector<std::string>& names,
                 const std::filesystem::path& directory);

}  // namespace heddle
