// The ranks that share a stage's parameters. This is the one place where a sharded strategy names axes.
#pragma once

#include <memory>
#include <string>

#include "heddle/mesh/device_mesh.h"

namespace heddle::sharding {

// Names of axes that the mesh knows, also derived ones.
struct AxisNames {
  std::string shards;    // parameters are split over it
  std::string replicas;  // copies of that arrangement; empty: there are none
  std::string all;       // both together
};

// Pointers are null where the group has one rank. The groups live as long as the mesh.
struct Groups {
  AxisNames axes;
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

// Makes the groups; called in the same order on every rank.
Groups groups_over(const DeviceMesh& mesh, AxisNames axes);

}  // namespace heddle::sharding
