// A parallelizer with an axis of its own, `acme`, in a view of its own: it splits the weights of toy layers
// by rows and gathers them for each forward.
#pragma once

#include <memory>
#include <string>

#include "plugins/toy_training.h"

namespace heddle::tests {

// How the toy parallelizer breaks a rule.
struct Acme {
  std::string axis = "acme";   // what it writes into Placed::axis
  bool also_dp_shard = false;  // it says that it splits dim 1 along dp_shard as well
};
std::unique_ptr<IParallelizer> make_acme(Acme acme = {});

AxisTable acme_table();

// `run` with the weights of its toy layers split over `acme` of its data-parallel ranks.
Training over_acme(Training run, int acme, Acme how = {});

}  // namespace heddle::tests
