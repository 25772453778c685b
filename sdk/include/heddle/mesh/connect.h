// Transfers that are announced, so that a device connects their ranks before the first step.
#pragma once

#include <span>
#include <utility>

#include "heddle/base/export.h"
#include "heddle/mesh/communicator.h"

namespace heddle::mesh {

// {source, target}: ranks of a group.
using Transfer = std::pair<int, int>;

// Optional, beside Communicator: a device whose ranks make a connection for each pair.
class HEDDLE_API ConnectsAhead {
 public:
  virtual ~ConnectsAhead();
  // See below. Throws Error{rank_lost | timeout}.
  virtual void connect(std::span<const Transfer> transfers) = 0;
};

// All ranks of the group call it, in one order with its collectives, with the same list, whoever is in it. The
// connections are made now, in the order of the list, so that none of these transfers is a first one that
// blocks. Others may follow. Does nothing for a communicator that connects nothing.
HEDDLE_API void connect(Communicator& group, std::span<const Transfer> transfers);

}  // namespace heddle::mesh
