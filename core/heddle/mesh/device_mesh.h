// The ranks of a run as a grid with named axes, and the groups along them.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/base/log.h"
#include "heddle/config/sizes.h"
#include "heddle/mesh/communicator.h"
#include "heddle/mesh/rendezvous.h"

namespace heddle {

// Row-major: the last axis is the fastest, so its ranks are neighbours. Names that can be asked for: the
// mesh's own axes; derived ones, which flatten several: dp = (dp_replicate, dp_shard), dp_shard_cp =
// (dp_shard, cp), dp_cp = (dp_replicate, dp_shard, cp) or (dp, cp), world = all; any other standard axis (tp,
// pp, cp, ep, ...) that this mesh does not have is of size 1. Everything else throws Error{mesh}. Copies
// share one mesh.
class HEDDLE_API DeviceMesh {
 public:
  std::span<const Axis> axes() const;  // outermost first
  int size(std::string_view axis) const;
  int rank(std::string_view axis) const;                // this rank's place on the axis
  std::vector<int> ranks(std::string_view axis) const;  // the global ranks of this rank's group, in order
  Communicator& group(std::string_view axis) const;     // made on first use, in the same order on every rank
  DeviceMesh refold(std::span<const std::string_view> from,
                    std::span<const Axis> to) const;  // same ranks, other axes
  Rendezvous& meeting() const;
  c10::Device device() const;  // where parameters live: strategies allocate there
  const Log& log() const;

  struct Shared;
  explicit DeviceMesh(std::shared_ptr<Shared> shared);

 private:
  std::shared_ptr<Shared> shared_;
};

namespace mesh {

// Compares the fingerprints of all ranks (one line per part, "part: value"), and throws Error{mesh} naming
// the ranks and the part that differ; then lays the axes over the world. The product of the axes is the world
// size.
HEDDLE_API DeviceMesh build(std::span<const Axis> axes, Rendezvous& meeting, const std::string& fingerprint);

}  // namespace mesh
}  // namespace heddle
