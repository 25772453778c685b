// A parallelizer with its own axis `acme` in its own view. It splits the weights of toy layers by rows and
// gathers them for each forward.
#pragma once

#include <memory>
#include <string>

#include "plugins/toy_training.h"

namespace heddle::tests {

// Rules that the toy parallelizer breaks.
struct Acme {
  std::string axis = "acme";   // the value of Placed::axis
  bool also_dp_shard = false;  // reports a split of dim 1 along dp_shard too
};
std::unique_ptr<IParallelizer> make_acme(Acme acme = {});

AxisTable acme_table();

// Returns `run` with the weights of its toy layers split over `acme` of its data-parallel ranks.
Training over_acme(Training run, int acme, Acme how = {});

}  // namespace heddle::tests
