// Time of one operator on a device.
#pragma once

#include "heddle/ops/compute_log.h"
#include "lib/cost/machine.h"

namespace heddle {

// Returns the kind of work of a recorded operator: "products", "attention" or "other operators".
const char* kind_of(const OperatorCall& call);

// Returns the seconds of a recorded operator without its launch: products by tiles and waves on the
// multiprocessors, attention by tiles of queries, other operators by bytes. 0: the machine file lacks the
// speeds.
double operator_seconds(const OperatorCall& call, const MachineFile& machine);

}  // namespace heddle
