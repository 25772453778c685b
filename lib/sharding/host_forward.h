// Forwards that a host drives: the order of units that the ranks agree on, and the forward under way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "heddle/sharding/stage.h"

namespace heddle::sharding {

struct ShardedStage::HostForward {
  HostForward(size_t units, Communicator* ranks)
      : units(units), ranks(ranks), around(units, 0), backward(units, 0), began(units, 0) {}

  // Returns the next unit that any rank runs: of the units that the ranks want, the first in the list.
  // `unit`: the one that this rank is about to run, or `units` where its forward has ended. A collective.
  size_t agree(size_t unit) const;
  // Sets each flag that is set on any rank. A collective.
  void agree(std::vector<char>& flags) const;
  // Returns the outputs that the unit computed, and the bases of those that are views: an operation in place
  // on a view replaces its node in the graph, but not that of the base. Skips leaves, and outputs that the
  // unit passes through: their gradients arrive after the backward of this unit.
  Tensors computed(size_t unit, const Tensors& outputs) const;
  // The units of all turns: those of `sequence`, and behind its predecessor in the list each unit that no
  // rank ran. places[i]: the turn of sequence[i].
  std::vector<size_t> order(std::vector<size_t>& places) const;

  const size_t units;
  Communicator* const ranks;  // null: one rank

  bool known = false;                  // the order: the first forward has ended
  bool backwards_known = false;        // a forward with gradients has ended
  std::vector<size_t> sequence;        // the units of the first forward so far
  std::vector<char> around, backward;  // of each unit: it runs others inside; its outputs require gradients

  std::vector<uint64_t> began;  // of each unit: autograd's number of the next node when the unit last began

  // The forward under way.
  struct Open {
    size_t unit, turn;
  };
  std::vector<Open> open;       // units that have begun, the innermost last
  std::vector<char> ran;        // of each turn, on this rank
  std::vector<size_t> reached;  // of each turn: the last turn whose gather it started
  size_t next = 0;              // turns before it are over
  bool running = false, training = false;

  // Forwards with gradients whose backward has not come, and how many of them the backward has passed.
  int64_t pending = 0, passed = 0;
  bool deferring = false;  // nothing is reduced before this backward ends
};

}  // namespace heddle::sharding
