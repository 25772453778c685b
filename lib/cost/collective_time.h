// Time of one collective on the links between devices.
#pragma once

#include <span>

#include "heddle/mesh/dry.h"
#include "lib/cost/machine.h"

namespace heddle {

// Where the ranks of a group lie. Nodes hold consecutive ranks.
struct GroupPlace {
  int ranks = 1;
  int nodes = 1;
  int on_node = 1;  // the most ranks of the group on one node
};
GroupPlace place_of_ranks(std::span<const int> ranks, const MachineFile& machine);

// Seconds of a collective when nothing else uses its links: rings, or trees for an all-reduce where these are
// faster, in the best of NCCL's three protocols. Groups that divide a node's ranks run at once and share its
// network evenly.
double collective_seconds(const DryEntry& entry, const GroupPlace& place, const MachineFile& machine);

}  // namespace heddle
