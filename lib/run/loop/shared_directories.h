// Checks that all hosts of a run share the directories in which the run saves.
#pragma once

#include "heddle/mesh/rendezvous.h"
#include "lib/run/spec/run_spec.h"

namespace heddle {

// Throws Error{config} on every rank, naming hosts, if checkpoint_dir or staging_dir is not the same
// directory on all hosts or a host cannot write to it: every rank writes its part of a checkpoint. Rank 0
// writes an empty file, the first rank of each host looks for it, and rank 0 removes it. Does nothing for a
// run on one host, for a run that does not save, and for ranks with different fingerprints, which the mesh
// reports. A collective of all ranks.
void check_shared_directories(const RunSpec& run, Rendezvous& rendezvous);

}  // namespace heddle
