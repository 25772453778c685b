// The model of a checkpoint as transformers reads it.
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

// Returns the manifest of a sharded model with these parameters, without boxes. plan_hf() of it throws what
// an export would refuse of the model's files, names and shapes.
checkpoint::Manifest manifest_of(const Units& units);
checkpoint::HfChoice export_choice(const CheckpointSection& section);

// STAGE/model/consolidated from the sharded files in STAGE/model and STAGE/optim, as checkpoint: says, before
// the stage is published as `directory`. An export that fails takes no checkpoint with it: what there is of
// it is taken away, and its error is returned, on every rank, to be thrown when the checkpoint is published;
// it says how the model is exported then. Thrown is what makes the checkpoint itself doubtful: saved files
// that cannot be read again, a rank that is lost. A collective, once for a directory in a run.
std::optional<Error> write_consolidated(const RunSpec& run, const std::filesystem::path& stage,
                                        const std::filesystem::path& directory, Rendezvous& rendezvous);

}  // namespace heddle
