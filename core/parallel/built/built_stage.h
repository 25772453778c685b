// The core's own stage around a strategy's: what it adds to finish_gradients() and refuses in forward().
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <vector>

#include "core/parallel/built/tied_copies.h"
#include "heddle/base/export.h"
#include "heddle/mesh/device_mesh.h"
#include "heddle/parallel/shard.h"
#include "heddle/parallel/stages.h"

namespace heddle::parallel {

// Whole parameters whose gradient each rank of an axis holds a part of (Shard::partial): norms over split
// tokens or split heads. One flat all_reduce for each axis and dtype, after the strategy has finished the
// gradients and before their norm is measured (Megatron's finalize_model_grads).
class HEDDLE_API PartialSums {
 public:
  // The shards must outlive this and not move; those without partial axes are ignored. Takes the
  // shards of all stages of a rank.
  PartialSums(std::span<Shard* const> shards, const DeviceMesh& mesh);

  // A collective of every rank. Gradients stay where they are and hold the sums; one that no rank has stays
  // undefined.
  void add();

 private:
  struct Entry {
    Shard* shard;
    at::Tensor part;   // its place in the buffer
    bool had = false;  // this rank had a gradient
  };
  struct Sum {  // one axis and dtype
    Communicator* ranks = nullptr;
    at::ScalarType dtype = at::kFloat;
    std::vector<Entry> entries;
    at::Tensor buffer, counts;  // counts: the last elements, how many ranks had each gradient
  };
  Sum& sum_of(Communicator& ranks, at::ScalarType dtype);
  static void lay_out(Sum& sum);
  static void add(Sum& sum);

  std::vector<Sum> sums_;  // in the order of the shards' axes
};

// Wraps the stages that need it: those with partial gradients (Shard::partial), whose sums then belong to
// finish_gradients(), so that every loop gets them; the last one of a rank with copies of tied parameters
// (null: there are none), likewise; and those of a pipeline, whose forward() is refused outside of a
// schedule. Called when the shards have their final addresses.
void complete(Stages& stages, const DeviceMesh& mesh, std::shared_ptr<TiedCopies> tied);

}  // namespace heddle::parallel
