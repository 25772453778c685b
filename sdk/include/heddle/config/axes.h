// The table of mesh axes: what each one is, and how it is configured. The only list of axes; plugins add to
// it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/base/export.h"

namespace heddle {

struct Axis {
  std::string name;
  int size = 1;
  bool operator==(const Axis&) const = default;
};

// A second set of axes over the same ranks: the neighbouring axes `over` of the mesh, flattened and unfolded
// as `axes`. The view has the mesh's other axes unchanged.
struct View {
  std::string name;               // "expert"
  std::vector<std::string> over;  // outermost first; those that the mesh lacks are skipped
  std::vector<Axis> axes;         // outermost first
  bool operator==(const View&) const = default;
};

// Every degree is at least 1; dp = dp_replicate * dp_shard; ep_shard is 1 when ep is 1.
struct Sizes {
  int world = 1;
  int pp = 1, dp = 1, dp_replicate = 1, dp_shard = 1, cp = 1, tp = 1, ep = 1, ep_shard = 1;
  std::vector<Axis> more = {};  // axes that plugins bring, and what these leave of the ranks of their view

  // The size of an axis by its name; of a joined one the product of its parts. Throws Error{mesh} on an
  // unknown name.
  HEDDLE_API int of(std::string_view axis) const;
};

// The axes that the engine itself asks a mesh for.
inline constexpr std::string_view kPipelineAxis = "pp";  // ranks with other stages
inline constexpr std::string_view kSampleAxis = "dp";    // ranks with other samples
inline constexpr std::string_view kTokenAxis = "dp_cp";  // ranks with other tokens
inline constexpr std::string_view kSplitAxis = "tp";     // ranks with the same tokens and parts of layers
inline constexpr std::string_view kWorldAxis = "world";  // all ranks

// What a plugin or a module does not support.
struct Refusal {
  std::string axis;  // refused when its size is above 1
  std::string text;  // the message, "acme does not support tensor parallelism"
};

enum class AxisKind {
  stages,  // its ranks hold other layers
  copies,  // its ranks hold other samples; parameters stay whole along it (hybrid sharding)
  data,    // its ranks hold other samples or tokens; a strategy may split parameters along it
  model,   // its parallelizer decides for each parameter
  joined,  // several axes as one, without a size of its own
};

struct AxisInfo {
  std::string name;  // "tp"
  AxisKind kind = AxisKind::model;
  std::string key = {};          // its size under `distributed:`, "tp_size"; empty: follows from the others
  std::string parallelism = {};  // for messages, "tensor parallelism"
  std::string view = {};         // its view; empty: the strategy's mesh
  std::vector<std::string> parts = {};  // the axes that it flattens if a mesh lacks it, outermost first
  bool has_parallelizer = true;         // a size above 1 asks for a parallelizer
  // Only for the engine's own axes.
  int Sizes::*size = nullptr;  // null: in Sizes::more
  int read = 100;              // keys are read and checked in this order (NeMo AutoModel's)
  int factor = 0;              // above 0: shares the world with data parallelism; in this order in messages
};

struct ViewInfo {
  std::string name;               // "expert"
  std::vector<std::string> over;  // as in View
  std::string rest;               // the axis of the remaining ranks, outermost
  std::string ranks = {};         // the number of its ranks in messages; empty: the product of its axes
};

// Rows in the order in which sizes are printed and compared. A copy of the engine's table, to which a run
// adds the axes of its plugins.
class HEDDLE_API AxisTable {
 public:
  AxisTable();
  static const AxisTable& standard();

  std::span<const AxisInfo> axes() const { return axes_; }
  std::span<const ViewInfo> views() const { return views_; }
  const AxisInfo* find(std::string_view name) const;     // null: unknown
  const AxisInfo* with_key(std::string_view key) const;  // null: no axis has it
  const ViewInfo* view(std::string_view name) const;     // null: unknown
  std::vector<std::string> names() const;
  std::vector<const AxisInfo*> in_order_of_reading() const;  // those with a key

  // Adds the axes of a parallelizer; `who`, for messages: "the parallelizer 'acme'". A view's `rest` becomes
  // an axis too. An equal entry is skipped. Throws Error{plugin_conflict} for a name or key with another
  // meaning, Error{plugin_failed} for an invalid axis.
  void add(std::span<const AxisInfo> axes, std::span<const ViewInfo> views, const std::string& who);

 private:
  void add(const AxisInfo& axis, const std::string& who);
  void add(const ViewInfo& view, const std::string& who);
  std::vector<AxisInfo> axes_;
  std::vector<ViewInfo> views_;
};

// The views in use for these sizes: those with an axis above 1 besides their `rest`.
HEDDLE_API std::vector<View> views_of(const Sizes& sizes, const AxisTable& table);

}  // namespace heddle
