// Checks that all hosts of a run share the directories in which the run saves.
#pragma once

#include "heddle/mesh/rendezvous.h"
#include "lib/run/spec/run_spec.h"

namespace heddle {

// Throws Error{config} on every rank, naming hosts, where checkpoint_dir or staging_dir is not one directory
// on all hosts, or where a host cannot write there: every rank writes its part of a checkpoint. Rank 0 writes
// an empty file, the first rank of each host looks for it, and the file is removed. Does nothing for a run
// on one host, for a run that does not save, and where the ranks have different fingerprints, which the mesh
// reports. A collective of all ranks.
void check_shared_directories(const RunSpec& run, Rendezvous& rendezvous);

}  // namespace heddle
