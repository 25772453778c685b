// The ranks that share parameters, from the axes along which their gradients are summed.
#pragma once

#include <memory>

#include "heddle/mesh/device_mesh.h"
#include "heddle/parallel/reduction.h"

namespace heddle::sharding {

// Pointers are null where the group has one rank. The groups live as long as the mesh.
struct Groups {
  Reduction axes;
  int shards = 1, shard = 0;      // ranks that split, and this rank's place among them
  int replicas = 1, replica = 0;  // copies, and this rank's
  Communicator* gather = nullptr;
  // The ranks of `gather` again, for reductions: on a rank whose gradients are missing they come later than
  // on others, so they have an order of their own.
  std::shared_ptr<Communicator> reduce;
  Communicator* across = nullptr;  // the replicas
  Communicator* all = nullptr;
  c10::Device device = at::kCPU;  // of parameters that come without storage

  int ranks() const { return shards * replicas; }
};

// Parameters with one reduction share one. Makes the groups; called in the same order on every rank.
Groups groups_over(const DeviceMesh& mesh, Reduction axes);

}  // namespace heddle::sharding
