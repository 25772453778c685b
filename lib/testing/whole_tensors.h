// Assembles whole tensors from the shards of all ranks, which are threads; reports duplicate or missing
// elements.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/mesh/device_mesh.h"
#include "heddle/parallel/shard.h"

namespace heddle::kits {

using Named = std::map<std::string, at::Tensor>;  // whole tensors

// Returns this rank's box of the whole tensor: a view.
HEDDLE_API at::Tensor box_of(const Shard& shard, at::Tensor whole);

// Whole tensors by their names. Ranks that differ along other axes than those that split a shard hold the
// same numbers: replicas. So do the copies of a tied parameter on the first and the last stage. If the
// replicas of a shard differ (Shard::differs), their mean is the whole tensor.
class HEDDLE_API WholeTensors {
 public:
  // Adds `numbers` (the shard's own, its gradient, ...), which have the shard's sizes. Any rank, any order.
  void add(const DeviceMesh& mesh, const Shard& shard, const at::Tensor& numbers);
  // Returns the tensors, once all ranks have added. Throws Error{plugin_failed} for a duplicate or missing
  // element in a replica, and for replicas that differ. `subject`: "the gradient of", for messages.
  Named take(const std::string& subject) const;

 private:
  struct Pieces {
    at::Tensor values, counts;
  };
  std::mutex mutex_;
  std::map<std::pair<std::string, int>, Pieces> pieces_;  // by the name and the replica
  std::set<std::string> differing_;                       // names of shards that differ
};

// Throws Error{plugin_failed} with the fault that a comparison found.
[[noreturn]] HEDDLE_API void found(const std::string& fault);

// Returns a difference as "3.1e-02".
HEDDLE_API std::string written(double number);

}  // namespace heddle::kits
