// The grid of ranks with named axes, its views, and the groups along axes.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/base/log.h"
#include "heddle/config/axes.h"
#include "heddle/mesh/communicator.h"
#include "heddle/mesh/rendezvous.h"

namespace heddle {

class Overlap;

// A mesh of ranks in row-major order: ranks along the last axis are consecutive. Copies share one mesh. Valid
// axis names:
//   an axis of any view;
//   a joined axis, which flattens several: dp = (dp_replicate, dp_shard), dp_shard_cp = (dp_shard, cp), dp_cp
//   = (dp, cp), world = all axes, and "a+b" for any axes of one view;
//   an axis of the table (config/axes.h) that is in no view, or "", which stand for this rank alone.
// Other names throw Error{mesh}.
class HEDDLE_API DeviceMesh {
 public:
  std::span<const Axis> axes() const;                       // axes of the strategy's mesh, outermost first
  std::span<const Axis> axes(std::string_view view) const;  // throws Error{mesh} for an unknown view
  std::vector<std::string> views() const;  // names: "dense", which is the strategy's mesh, then further views
  const AxisTable& table() const;

  bool has(std::string_view axis) const;  // whether the axis is in a view or joins axes of a view
  int size(std::string_view axis) const;
  int rank(std::string_view axis) const;                // this rank's position on the axis
  std::vector<int> ranks(std::string_view axis) const;  // global ranks of this rank's group, ascending
  Communicator& group(std::string_view axis) const;  // created on first use, in the same order on every rank

  // Returns why a parameter cannot have these axes, or "". They must be in one view, each at most once.
  std::string axes_error(std::span<const std::string> axes) const;
  std::string view_of(std::span<const std::string> axes) const;  // the first view that has all of these axes
  std::vector<std::string> parts_of(std::span<const std::string> axes) const;  // that view's own axes

  Rendezvous& rendezvous() const;
  c10::Device device() const;  // the device of parameters, where strategies allocate
  const Log& log() const;

  struct Shared;
  explicit DeviceMesh(std::shared_ptr<Shared> shared);
  Overlap* overlap() const;  // for the engine: runs actions that a schedule overlaps; null without overlap

 private:
  std::shared_ptr<Shared> shared_;
};

namespace mesh {

// Lays out the axes over the world, after comparing the fingerprints of all ranks, to which the axes and
// views are added. A fingerprint has one line "part: value" per part. The product of the axes is the world
// size, and a view has as many ranks as the axes that it refolds. Throws Error{mesh}, which names the ranks
// and parts that differ.
HEDDLE_API DeviceMesh build(std::span<const Axis> axes, Rendezvous& rendezvous,
                            const std::string& fingerprint, std::span<const View> views = {},
                            const AxisTable& table = AxisTable::standard());

}  // namespace mesh
}  // namespace heddle
