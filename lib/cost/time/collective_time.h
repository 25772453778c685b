// Time of one collective on the links between devices.
#pragma once

#include <span>

#include "heddle/mesh/dry.h"
#include "lib/cost/machine.h"

namespace heddle {

// Placement of a group's ranks on nodes. Nodes hold consecutive ranks.
struct GroupPlace {
  int ranks = 1;
  int nodes = 1;
  int on_node = 1;  // maximum number of the group's ranks on one node
};
GroupPlace group_place(std::span<const int> ranks, const MachineFile& machine);

// Returns the seconds of a collective that uses its links alone: rings, or trees for a faster all-reduce,
// with the best of NCCL's three protocols. Groups that partition a node's ranks run concurrently and share
// its network evenly.
double collective_seconds(const DryEntry& entry, const GroupPlace& place, const MachineFile& machine);

}  // namespace heddle
