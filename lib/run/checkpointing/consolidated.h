// Exports the model of a checkpoint in the Hugging Face format.
#pragma once

#include <filesystem>
#include <optional>

#include "heddle/base/error.h"
#include "heddle/checkpoint/manifest.h"
#include "heddle/mesh/rendezvous.h"
#include "heddle/model/unit.h"
#include "lib/checkpoint/huggingface/hf_plan.h"
#include "lib/run/spec/run_spec.h"

namespace heddle {

// Returns the manifest of a sharded model with these parameters, without boxes. plan_hf() of this manifest
// throws if an export would refuse the model's files, names or shapes.
checkpoint::Manifest manifest_of(const Units& units);
checkpoint::HfChoice export_choice(const CheckpointSection& section);

// Writes STAGE/model/consolidated from the sharded files in STAGE/model and STAGE/optim, before the stage is
// published as `directory`. If the export fails, removes its files and returns the error on every rank: the
// caller publishes the checkpoint and then throws the error, whose hint says how to export later. Throws only
// if the checkpoint itself is doubtful: saved files cannot be read back, or a rank is lost. A collective,
// called once per directory.
std::optional<Error> write_consolidated(const RunSpec& run, const std::filesystem::path& stage,
                                        const std::filesystem::path& directory, Rendezvous& rendezvous);

}  // namespace heddle
