// The ranks that share parameters, from the axes along which their gradients are summed.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "heddle/mesh/device_mesh.h"
#include "heddle/parallel/reduction.h"

namespace heddle::sharding {

// Pointers are null for a group of one rank. The groups live as long as the mesh.
struct Groups {
  Reduction axes;
  int shards = 1, shard = 0;      // ranks that split, and this rank's index among them
  int replicas = 1, replica = 0;  // copies, and this rank's
  Communicator* gather = nullptr;
  // A second group of the ranks of `gather`, for reductions: a rank whose gradients are missing reduces later
  // than others, so reductions need an order of their own.
  std::shared_ptr<Communicator> reduce;
  Communicator* across = nullptr;  // the replicas
  Communicator* all = nullptr;
  c10::Device device = at::kCPU;  // of parameters without storage

  int ranks() const { return shards * replicas; }
};

// Makes the groups for the parameters of one reduction; called in the same order on every rank.
Groups groups_over(const DeviceMesh& mesh, Reduction axes);

// The values of a slot's tensor on the first of the ranks, which may hold others: a copy on `tensor`'s
// device, or `tensor` itself for one rank and on meta. A collective call.
at::Tensor first_values(const at::Tensor& tensor, const Groups& groups);

}  // namespace heddle::sharding
