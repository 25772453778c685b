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

// Over which ranks a parameter is sharded, by its name. The places outlive the model's making.
using Places = std::function<const Place&(const std::string& parameter)>;

// A group for each pair of dtypes (of storage, of compute) and each reduction of a unit's own parameters.
sharding::Model make_model(Units units, std::span<const Placed> placed, const Places& places,
                           std::vector<sharding::Reshard> reshard, Frozen frozen);

inline Group& group_of(sharding::Bucket& bucket) {
  return static_cast<Group&>(bucket);
}

// Of each unit: its model chose the dtype of every parameter, so its inputs and outputs stay as well.
std::vector<char> pinned_units(const sharding::Model& model);

// Returns when gradients that moved to host memory are there.
void wait_for_moved_gradients(const sharding::Model& model);

}  // namespace heddle::fsdp2
