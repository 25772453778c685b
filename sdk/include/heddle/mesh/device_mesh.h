// The ranks of a run as a grid with named axes, further views of them, and the groups along axes.
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

// Row-major: the last axis is the fastest, so its ranks are neighbours. Valid names:
//   an axis of any view;
//   a joined one, which flattens several: dp = (dp_replicate, dp_shard), dp_shard_cp = (dp_shard, cp),
//   dp_cp = (dp, cp), world = all, and "a+b" for any axes of one view;
//   an axis of the table (config/axes.h) that is in no view, which is this rank alone; so is "".
// Everything else throws Error{mesh}. Copies share one mesh.
class HEDDLE_API DeviceMesh {
 public:
  std::span<const Axis> axes() const;                       // of the strategy's mesh, outermost first
  std::span<const Axis> axes(std::string_view view) const;  // Throws Error{mesh} on an unknown view
  std::vector<std::string> views() const;                   // "dense", the strategy's mesh; then the others
  const AxisTable& table() const;

  bool has(std::string_view axis) const;  // it is in a view, or joins axes that are
  int size(std::string_view axis) const;
  int rank(std::string_view axis) const;                // this rank's position on the axis
  std::vector<int> ranks(std::string_view axis) const;  // the global ranks of this rank's group, in order
  Communicator& group(std::string_view axis) const;     // made on first use, in the same order on every rank

  // A parameter's axes must be in one view, each once: what is wrong with them, or "".
  std::string fault_of(std::span<const std::string> axes) const;
  std::string view_of(std::span<const std::string> axes) const;  // the first view that has all of them
  std::vector<std::string> parts_of(std::span<const std::string> axes) const;  // that view's own axes

  Rendezvous& rendezvous() const;
  c10::Device device() const;  // where parameters live: strategies allocate there
  const Log& log() const;

  struct Shared;
  explicit DeviceMesh(std::shared_ptr<Shared> shared);
  Overlap* overlap() const;  // for the engine: runs actions that a schedule overlaps; null: none

 private:
  std::shared_ptr<Shared> shared_;
};

namespace mesh {

// Compares the fingerprints of all ranks (one line per part, "part: value"; the axes and views are added to
// it), and throws Error{mesh} naming the ranks and the part that differ; then lays out the axes over the
// world. The product of the axes is the world size, and a view holds as many ranks as the axes that it
// refolds.
HEDDLE_API DeviceMesh build(std::span<const Axis> axes, Rendezvous& rendezvous,
                            const std::string& fingerprint, std::span<const View> views = {},
                            const AxisTable& table = AxisTable::standard());

}  // namespace mesh
}  // namespace heddle
