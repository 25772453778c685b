// The model of a checkpoint as transformers reads it.
#pragma once

#include <filesystem>
#include <string>

#include "heddle/mesh/rendezvous.h"
#include "trainer/loop/job.h"

namespace heddle {

// MODEL/consolidated from the sharded files in MODEL and OPTIMIZER, as checkpoint: says. A collective; what
// fails on one rank throws on every rank. `key` is used once in a run.
void write_consolidated(const Job& job, const std::filesystem::path& model,
                        const std::filesystem::path& optimizer, Rendezvous& meeting, const std::string& key);

}  // namespace heddle
