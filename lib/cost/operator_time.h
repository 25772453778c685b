// Time of one operator on a device.
#pragma once

#include "heddle/ops/compute_log.h"
#include "lib/cost/machine.h"

namespace heddle {

// Seconds of a recorded operator without its launch: of a product by tiles and waves on the multiprocessors,
// of attention by tiles of queries, of all others by bytes. 0: the machine has no figures for it.
double operator_seconds(const OperatorCall& call, const MachineFile& machine);

}  // namespace heddle
