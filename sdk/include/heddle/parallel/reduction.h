// The ranks over which the gradient of each parameter is summed, and the ranks that may shard it.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/mesh/device_mesh.h"
#include "heddle/parallel/shard.h"

namespace heddle {

// Axis names for groups and sizes of the mesh; empty stands for this rank alone. `all` is `copies` times
// `shards`. Ranks that differ only along `all` have the same part of the parameter and different samples or
// tokens.
struct Reduction {
  std::string all;     // the gradient is summed over this axis
  std::string copies;  // the parameter is replicated along this axis (hybrid sharding)
  std::string shards;  // a strategy may shard the parameter along this axis
  bool operator==(const Reduction&) const = default;
};

// The reductions of all parameters. Gradients of dense parameters are summed over dp and cp. A parameter that
// a parallelizer splits, or gives a partial gradient, along an axis of another view (experts along ep) is
// summed over the data axes of that view (ep_shard). A strategy that uses this class declares the feature
// `reductions`.
class HEDDLE_API Reductions {
 public:
  // Throws Error{config} for a parameter whose axes are not in one view.
  Reductions(const DeviceMesh& mesh, std::span<const Placed> placed);
  const Reduction& dense() const { return dense_; }
  const Reduction& of(std::string_view parameter) const;
  // Returns each reduction once, dense() first.
  std::vector<Reduction> distinct() const;

 private:
  Reduction dense_;
  std::map<std::string, Reduction, std::less<>> placed_;  // for parameters with axes
};

// Throws Error{internal} if the axes of a shard are not in one view of the mesh.
HEDDLE_API void check_axes(const Shard& shard, std::span<const std::string> axes, const DeviceMesh& mesh);

}  // namespace heddle
