// The groups of a stage's parameters.
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

// Over which ranks a parameter is sharded, by its name. The layouts outlive the construction of the model.
using Places = std::function<const Place&(const std::string& parameter)>;

// A group for each pair of dtypes (of storage, of compute) and each reduction of a unit's own parameters.
sharding::Model make_model(Units units, std::span<const Placed> placed, const Places& places,
                           std::vector<sharding::Reshard> reshard, Frozen frozen);

inline Group& group_of(sharding::Bucket& bucket) {
  return static_cast<Group&>(bucket);
}

// For each unit: the model chose the dtype of every parameter, so its inputs and outputs are not cast.
std::vector<char> pinned_units(const sharding::Model& model);

// Returns when gradients have arrived in host memory.
void wait_for_moved_gradients(const sharding::Model& model);

}  // namespace heddle::fsdp2
