// Creation of a stage's parameter groups.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gradients.h"
#include "group.h"
#include "heddle/sharding/model.h"

namespace heddle::fsdp2 {

// Maps a parameter's name to the layout of the ranks that shard it. The layouts outlive the construction of
// the model.
using Places = std::function<const Place&(const std::string& parameter)>;

// Creates a group for each combination of storage dtype, compute dtype and reduction of a unit's own
// parameters.
sharding::Model make_model(Units units, std::span<const Placed> placed, const Places& places,
                           std::vector<sharding::Reshard> reshard, Frozen frozen);

inline Group& group_of(sharding::Bucket& bucket) {
  return static_cast<Group&>(bucket);
}

// Returns, per unit, whether the model chose the dtype of every parameter. Inputs and outputs of such units
// are not cast.
std::vector<char> pinned_units(const sharding::Model& model);

// Waits until gradients have arrived in host memory.
void wait_for_moved_gradients(const sharding::Model& model);

}  // namespace heddle::fsdp2
