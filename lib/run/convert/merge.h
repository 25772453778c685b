// A model with its adapters added, as a sharded directory.
#pragma once

#include <filesystem>

#include "heddle/mesh/rendezvous.h"
#include "lib/run/model/prepared_model.h"

namespace heddle {

// Writes DIRECTORY as write_sharded() does; each rank holds its share of the parameters in memory. A
// collective.
void write_merged(const PreparedModel& model, const std::filesystem::path& directory, Rendezvous& rendezvous);

}  // namespace heddle
