// Runs of the toy units, for tests of strategies.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "plugins/topologies.h"
#include "plugins/toy_units.h"

namespace heddle::tests {

// Uses fp32 for fsdp2, unless `more` has an mp_policy.
Training toy(const std::string& strategy, std::vector<Axis> axes, const std::string& more = "",
             Toy shape = {});

// One rank of a toy run: its stages, the units and its events.
struct ToyRank {
  Stages& stages;
  const DeviceMesh& mesh;
  const std::vector<ToyUnit*>& units;
  Events& events;
};
void on_toy_ranks(Training run, const std::function<void(const ToyRank&)>& body);

// Two sequences of three tokens, which are their own labels.
Batch toy_batch();
// Runs a step of one microbatch, the last one.
void toy_step(Stages& stages);

// Returns the collectives of rank 0 in one step.
Events events_of(Training run);
// Returns collectives and forwards of the toy's units, in order. Collectives are reduced to their names.
Events story_of(Training run, const Toy& shape = {});
// Sets the units of a toy whose forwards are recorded with the collectives of their rank.
void write_forwards(Training& run, std::vector<Events>& events, const Toy& shape = {});

// Returns the number of events with this prefix.
int count(const Events& events, const std::string& start);

// Slices 0 and 1 are the two ranks, or the two microbatches of one rank. Where the value is 0, the layers'
// `extra` is not used.
void use_extra_where(Training& run, const std::vector<double>& used);

void expect_same(const std::map<std::string, at::Tensor>& got, const std::map<std::string, at::Tensor>& want);

// Returns the error that body throws, as printed.
std::string error_of(const std::function<void()>& body);

}  // namespace heddle::tests
