// Table of mesh axes with their meaning and configuration. The engine and plugins take axes only from it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/base/export.h"

namespace heddle {

// An axis of a mesh.
struct Axis {
  std::string name;
  int size = 1;
  bool operator==(const Axis&) const = default;
};

// A second set of axes over the same ranks: flattens the consecutive axes `over` of the mesh and unfolds them
// as `axes`. The other axes of the mesh are unchanged.
struct View {
  std::string name;               // "expert"
  std::vector<std::string> over;  // outermost first; axes that the mesh lacks are skipped
  std::vector<Axis> axes;         // outermost first
  bool operator==(const View&) const = default;
};

// Sizes of the engine's axes. Each is at least 1; dp = dp_replicate * dp_shard; ep_shard is 1 when ep is 1.
struct Sizes {
  int world = 1;
  int pp = 1, dp = 1, dp_replicate = 1, dp_shard = 1, cp = 1, tp = 1, ep = 1, ep_shard = 1;
  std::vector<Axis> plugin_axes = {};  // axes of plugins, and the remaining ranks of their views

  // Returns the size of an axis by name; for a joined axis the product of its parts. Throws Error{mesh} for
  // an unknown name.
  HEDDLE_API int of(std::string_view axis) const;
};

// Axes that the engine itself looks up in a mesh.
inline constexpr std::string_view kPipelineAxis = "pp";  // ranks with different stages
inline constexpr std::string_view kSampleAxis = "dp";    // ranks with different samples
inline constexpr std::string_view kTokenAxis = "dp_cp";  // ranks with different tokens
inline constexpr std::string_view kSplitAxis = "tp";     // ranks with the same tokens and parts of layers
inline constexpr std::string_view kWorldAxis = "world";  // all ranks

// A combination that a plugin or a module does not support.
struct Refusal {
  std::string axis;  // refused if the size of this axis is above 1
  std::string text;  // the message: "acme does not support tensor parallelism"
};

// The difference between the ranks of an axis.
enum class AxisKind {
  stages,  // its ranks hold different layers
  copies,  // its ranks hold different samples and whole parameters (the replicas of hybrid sharding)
  data,    // its ranks hold different samples or tokens; a strategy may shard parameters along it
  model,   // its parallelizer decides per parameter
  joined,  // flattens several axes and has no size of its own
};

// A row of the table: an axis and its configuration.
struct AxisInfo {
  std::string name;  // "tp"
  AxisKind kind = AxisKind::model;
  std::string key = {};  // key of its size under `distributed:`, "tp_size"; empty: derived from other sizes
  std::string parallelism = {};         // for messages: "tensor parallelism"
  std::string view = {};                // the view it belongs to; empty: the strategy's mesh
  std::vector<std::string> parts = {};  // the axes that it joins if a mesh lacks it, outermost first
  bool has_parallelizer = true;         // whether a size above 1 needs a parallelizer
  // Members for the engine's own axes only.
  int Sizes::*size = nullptr;  // null if the size is in Sizes::plugin_axes
  int read = 100;              // order in which keys are read and checked, as in NeMo AutoModel
  int factor = 0;  // order in messages of an axis that divides the world besides data parallelism; else 0
};

// A row of the table: a view of the mesh.
struct ViewInfo {
  std::string name;               // "expert"
  std::vector<std::string> over;  // see View::over
  std::string rest;               // the outermost axis, over the remaining ranks
  std::string ranks = {};         // how messages name its number of ranks; empty: the product of its axes
};

// A copy of the engine's table to which a run adds the axes of its plugins. The order of the rows is the
// order in which sizes are printed and compared.
class HEDDLE_API AxisTable {
 public:
  AxisTable();
  static const AxisTable& standard();

  std::span<const AxisInfo> axes() const { return axes_; }
  std::span<const ViewInfo> views() const { return views_; }
  const AxisInfo* find(std::string_view name) const;     // null if unknown
  const AxisInfo* with_key(std::string_view key) const;  // null if no axis has the key
  const ViewInfo* view(std::string_view name) const;     // null if unknown
  std::vector<std::string> names() const;
  std::vector<const AxisInfo*> in_order_of_reading() const;  // the axes that have a key

  // Adds the axes and views of a parallelizer. A view's `rest` becomes an axis too. Skips an equal entry.
  // who: the parallelizer in messages, "the parallelizer 'acme'". Throws Error{plugin_conflict} for a name or
  // key with a different meaning, and Error{plugin_failed} for an invalid axis.
  void add(std::span<const AxisInfo> axes, std::span<const ViewInfo> views, const std::string& who);

 private:
  void add(const AxisInfo& axis, const std::string& who);
  void add(const ViewInfo& view, const std::string& who);
  std::vector<AxisInfo> axes_;
  std::vector<ViewInfo> views_;
};

// Returns the views that these sizes use: views with an axis other than `rest` above 1.
HEDDLE_API std::vector<View> views_of(const Sizes& sizes, const AxisTable& table);

}  // namespace heddle
