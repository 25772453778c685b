// The data axes of the view of a parameter's axes, without those axes.
#include "heddle/parallel/reduction.h"

#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/base/text.h"

namespace heddle {
namespace {

using Names = std::vector<std::string>;

// One name for several axes of a view, outermost first. Axes of size 1 after the first do not count.
std::string as_one(const DeviceMesh& mesh, const Names& axes) {
  Names kept;
  for (const std::string& axis : axes)
    if (kept.empty() || mesh.size(axis) > 1) kept.push_back(axis);
  if (kept.size() < 2) return kept.empty() ? "" : kept.front();
  const std::string plain = text::join(kept, "+");
  for (const AxisInfo& info : mesh.table().axes())
    if (!info.parts.empty() && mesh.has(info.name) && mesh.ranks(info.name) == mesh.ranks(plain))
      return info.name;
  return plain;
}

Reduction reduction_in(const DeviceMesh& mesh, const std::string& view, const Names& without) {
  Names all, copies, shards;
  for (const Axis& axis : mesh.axes(view)) {
    const AxisInfo* info = mesh.table().find(axis.name);
    const bool is_copies = info != nullptr && info->kind == AxisKind::copies;
    if (!is_copies && (info == nullptr || info->kind != AxisKind::data)) continue;
    if (std::find(without.begin(), without.end(), axis.name) != without.end()) continue;
    all.push_back(axis.name);
    (is_copies ? copies : shards).push_back(axis.name);
  }
  return {as_one(mesh, all), as_one(mesh, copies), as_one(mesh, shards)};
}

}  // namespace

Reductions::Reductions(const DeviceMesh& mesh, std::span<const Placed> placed)
    : dense_(reduction_in(mesh, mesh.views().front(), {})) {
  std::map<std::string, Names> axes;
  for (const Placed& one : placed) axes[one.parameter].push_back(one.axis);
  std::map<Names, Reduction> known;  // parameters are many, and few of them differ
  for (const auto& [parameter, names] : axes) {
    if (const auto same = known.find(names); same != known.end()) {
      placed_.emplace(parameter, same->second);
      continue;
    }
    if (const std::string fault = mesh.axes_error(names); !fault.empty())
      throw Error(ErrorCode::config, "parallel", "parameter '" + parameter + "': " + fault,
                  "let one of its parallelizers leave the parameter whole");
    const Reduction found = reduction_in(mesh, mesh.view_of(names), mesh.parts_of(names));
    known.emplace(names, found);
    placed_.emplace(parameter, found);
  }
}

const Reduction& Reductions::of(std::string_view parameter) const {
  const auto found = placed_.find(parameter);
  return found == placed_.end() ? dense_ : found->second;
}

std::vector<Reduction> Reductions::distinct() const {
  std::vector<Reduction> out = {dense_};
  for (const auto& [parameter, one] : placed_)
    if (std::find(out.begin(), out.end(), one) == out.end()) out.push_back(one);
  return out;
}

void check_axes(const Shard& shard, std::span<const std::string> axes, const DeviceMesh& mesh) {
  if (const std::string fault = mesh.axes_error(axes); !fault.empty())
    throw Error(ErrorCode::internal, "parallel", "shard of '" + shard.name + "': " + fault,
                "set Shard::axes, Shard::partial and Shard::differs to axes of one view of the mesh");
}

}  // namespace heddle
