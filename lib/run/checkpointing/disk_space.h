// Checks that the disk has room for the checkpoints of a run.
#pragma once

#include <string>

#include "lib/run/spec/run_spec.h"

namespace heddle {

// Returns "the checkpoints of this run take 12.00 GiB in DIR (4 of 3.00 GiB), ...", or "" if the disk has
// room or its free space is unknown. Counts the newest max_recent_checkpoints, the best checkpoint and one
// that is being written.
std::string disk_space_warning(const RunSpec& run);

// Sizes in bytes: `checkpoint` of one checkpoint, `total` of `count` checkpoints and the last export, and
// `free` on the disk.
struct SpaceNeed {
  int64_t count = 0;
  double checkpoint = 0, total = 0, free = 0;
  bool exports = false;  // the run exports its model
};

// Formats the warning of disk_space_warning().
std::string space_text(const CheckpointSection& section, const SpaceNeed& need);

}  // namespace heddle
