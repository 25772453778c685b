// The ranks over which the gradient of each parameter is summed, and those that may split it.
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

// Names of axes, for the mesh's groups and sizes; empty: this rank alone. `all` is `copies` times `shards`.
// Ranks that differ only along `all` hold the same part of the parameter and other samples or tokens.
struct Reduction {
  std::string all;     // the gradient is summed over it
  std::string copies;  // the parameter stays whole along it (hybrid sharding)
  std::string shards;  // a strategy may split the parameter along it
  bool operator==(const Reduction&) const = default;
};

// Dense parameters are summed over dp and cp. A parameter that a parallelizer splits, or declares a partial
// gradient of, along an axis of another view (experts along ep) is summed over the data axes of that view
// (ep_shard). A strategy that uses this class declares the feature `reductions`.
class HEDDLE_API Reductions {
 public:
  // Throws Error{config} for a parameter whose axes are in no common view.
  Reductions(const DeviceMesh& mesh, std::span<const Placed> placed);
  const Reduction& dense() const { return dense_; }
  const Reduction& of(std::string_view parameter) const;
  // All of them, each once, dense() first.
  std::vector<Reduction> distinct() const;

 private:
  Reduction dense_;
  std::map<std::string, Reduction, std::less<>> placed_;  // of parameters with axes
};

// Throws Error{internal} for axes of a shard that are not in one view of the mesh.
HEDDLE_API void check_axes(const Shard& shard, std::span<const std::string> axes, const DeviceMesh& mesh);

}  // namespace heddle
