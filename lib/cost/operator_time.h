// Time of one operator on a device.
#pragma once

#include "heddle/ops/compute_log.h"
#include "lib/cost/machine.h"

namespace heddle {

// The kind of work that a part of a step's time is: "products", "attention" or "other operators".
const char* kind_of(const OperatorCall& call);

// Seconds of a recorded operator without its launch: of a product by tiles and waves on the multiprocessors,
// of attention by tiles of queries, of all others by bytes. 0: the machine has no figures for it.
double operator_seconds(const OperatorCall& call, const MachineFile& machine);

}  // namespace heddle
