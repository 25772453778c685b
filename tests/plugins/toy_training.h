// Runs of the toy units, for tests of strategies.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "plugins/topologies.h"
#include "plugins/toy_units.h"

namespace heddle::tests {

// For fsdp2 in fp32, unless `more` has an mp_policy of its own.
Training toy(const std::string& strategy, std::vector<Axis> axes, const std::string& more = "",
             Toy shape = {});

// One rank of a toy run: what was built, the units and the events of this rank.
struct ToyRank {
  Stages& stages;
  const DeviceMesh& mesh;
  const std::vector<ToyUnit*>& units;
  Events& events;
};
void on_toy_ranks(Training run, const std::function<void(const ToyRank&)>& body);

// Two sequences of three tokens, which are their labels.
Batch toy_batch();
// A step of one microbatch: the last one.
void toy_step(Stages& stages);

// Collectives of rank 0 in one step.
Events events_of(Training run);
// And the forwards of the toy's units, in order; collectives without what follows their name.
Events story_of(Training run, const Toy& shape = {});
// The units of a toy, whose forwards are written down beside the collectives of their rank.
void write_forwards(Training& run, std::vector<Events>& events, const Toy& shape = {});

// How many events start like this.
int count(const Events& events, const std::string& start);

// Slices 0 and 1 are the two ranks, or the two microbatches of one rank; where the value is 0, the layers'
// `extra` takes no part.
void use_extra_where(Training& run, const std::vector<double>& used);

void expect_same(const std::map<std::string, at::Tensor>& got, const std::map<std::string, at::Tensor>& want);

// The error that body throws, as a person sees it.
std::string error_of(const std::function<void()>& body);

}  // namespace heddle::tests
