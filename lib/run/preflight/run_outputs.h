// What a run will write, and what it reads.
#pragma once

#include "lib/run/preflight/prepare.h"

namespace heddle {

// Collects the files and directories that the run writes: what the command line names, checkpoint_dir with
// what lies in it beside checkpoints, and staging_dir. Throws Error{usage} or Error{config} where
// refuse_outputs() does, where a named file has the name of a checkpoint, and where checkpoint_dir is the
// directory of the model that the run starts from. Nothing is written.
void refuse_outputs(const RunSpec& run, const NamedOutputs& named);

}  // namespace heddle
