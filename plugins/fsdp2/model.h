// The groups of a stage's parameters.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "gradients.h"
#include "group.h"
#include "heddle/sharding/model.h"

namespace heddle::fsdp2 {

// A group for each pair of dtypes (of storage, of compute) of a unit's own parameters.
sharding::Model make_model(Units units, std::span<const Placed> placed, const Place& place,
                           std::vector<sharding::Reshard> reshard, Frozen frozen);

inline Group& group_of(sharding::Bucket& bucket) {
  return static_cast<Group&>(bucket);
}

// Of each unit: its model chose the dtype of every parameter, so its inputs and outputs stay as well.
std::vector<char> pinned_units(const sharding::Model& model);

// Returns when gradients that moved to host memory are there.
void wait_for_moved_gradients(const sharding::Model& model);

}  // namespace heddle::fsdp2
