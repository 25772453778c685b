// Looks up axes: own ones, joined ones, and the view of several.
#include "core/mesh/views.h"

#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/base/text.h"

namespace heddle::mesh {
namespace {

std::vector<std::string> pieces_of(std::string_view name) {
  std::vector<std::string> out;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('+', begin), name.size());
    out.emplace_back(name.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

// The axes of a layout that a name of the table means; those that the layout lacks are left out.
void expand(const Layout& layout, const AxisTable& table, std::string_view name, std::vector<int>& out) {
  if (const int own = layout.index_of(name); own >= 0) return out.push_back(own);
  if (const AxisInfo* info = table.find(name); info != nullptr)
    for (const std::string& part : info->parts) expand(layout, table, part, out);
}

std::vector<int> all_of(const Layout& layout) {
  std::vector<int> out(layout.axes.size());
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<int>(i);
  return out;
}

void add_name(std::vector<std::string>& names, const std::string& name) {
  if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
}

}  // namespace

Views::Views(std::span<const Axis> axes, int world_size, std::span<const View> views, AxisTable table)
    : table_(std::move(table)) {
  layouts_.emplace_back(kDense, lay_out(axes, world_size));
  for (const View& view : views) {
    for (const Axis& axis : view.axes)
      if (has(axis.name))
        throw Error(ErrorCode::mesh, "mesh", "axis " + axis.name + " is in two views of the mesh");
    std::vector<int> from;
    for (const std::string& name : view.over) expand(layouts_.front().second, table_, name, from);
    layouts_.emplace_back(view.name, layouts_.front().second.refold(from, view.axes));
  }
}

// A further view has a joined axis when it has all that the axis joins in the strategy's mesh.
bool Views::parts_in(const Layout& layout, std::string_view name, std::vector<int>& out) const {
  if (name == kWorldAxis) {
    out = all_of(layout);
    return true;
  }
  const Layout& dense = layouts_.front().second;
  for (const std::string& piece : pieces_of(name)) {
    if (const int own = layout.index_of(piece); own >= 0) {
      out.push_back(own);
      continue;
    }
    std::vector<int> joined;
    expand(dense, table_, piece, joined);
    if (joined.empty()) return false;
    for (const int axis : joined) {
      const int own = layout.index_of(dense.axes[axis].name);
      if (own < 0) return false;
      out.push_back(own);
    }
  }
  std::sort(out.begin(), out.end());
  return true;
}

Views::Found Views::find(std::string_view name) const {
  for (const auto& [view, layout] : layouts_) {
    std::vector<int> axes;
    if (name.empty() || parts_in(layout, name, axes)) return {&layout, std::move(axes)};
  }
  if (table_.find(name) != nullptr) return {&layouts_.front().second, {}};
  const std::vector<std::string> pieces = pieces_of(name), names = known();
  for (const std::string& piece : pieces) {
    if (has(piece) || table_.find(piece) != nullptr) continue;
    const std::string near = text::nearest(piece, names);
    throw Error(ErrorCode::mesh, "mesh",
                "unknown axis '" + piece + "'; the mesh is " + written() + " and knows " + text::join(names),
                near.empty() ? "" : "did you mean '" + near + "'?");
  }
  throw Error(ErrorCode::mesh, "mesh", axes_error(pieces));
}

bool Views::has(std::string_view name) const {
  return std::any_of(layouts_.begin(), layouts_.end(), [&](const auto& view) {
    std::vector<int> axes;
    return parts_in(view.second, name, axes);
  });
}

const Layout& Views::layout(std::string_view view) const {
  for (const auto& [name, layout] : layouts_)
    if (name == view) return layout;
  throw Error(ErrorCode::mesh, "mesh", "unknown view '" + std::string(view) + "'; the mesh is " + written());
}

int Views::common(std::span<const std::string> axes) const {
  for (size_t view = 0; view < layouts_.size(); ++view) {
    const bool all = std::all_of(axes.begin(), axes.end(), [&](const std::string& axis) {
      std::vector<int> parts;
      return parts_in(layouts_[view].second, axis, parts);
    });
    if (all) return static_cast<int>(view);
  }
  return -1;
}

std::vector<int> Views::parts(int view, std::span<const std::string> axes) const {
  std::vector<int> out;
  for (const std::string& axis : axes) {
    std::vector<int> parts;
    parts_in(layouts_[view].second, axis, parts);
    out.insert(out.end(), parts.begin(), parts.end());
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::string Views::axes_error(std::span<const std::string> axes) const {
  for (const std::string& axis : axes)
    if (!has(axis)) return "the axis '" + axis + "' is in no view of this mesh, which is " + written();
  const int view = common(axes);
  if (view < 0)
    return "the axes " + text::join(axes) + " are in no common view of this mesh, which is " + written();
  const std::vector<int> own = parts(view, axes);
  const auto twice = std::adjacent_find(own.begin(), own.end());
  if (twice == own.end()) return "";
  return "the axis '" + layouts_[view].second.axes[*twice].name + "' is named twice in " + text::join(axes);
}

std::string Views::written() const {
  std::vector<std::string> words;
  for (const auto& [name, layout] : layouts_)
    words.push_back((layouts_.size() > 1 ? name + " " : "") + mesh::written(layout.axes));
  return text::join(words);
}

// Own axes first, then those of the table, joined ones last.
std::vector<std::string> Views::known() const {
  std::vector<std::string> out;
  for (const auto& [name, layout] : layouts_)
    for (const Axis& axis : layout.axes) add_name(out, axis.name);
  for (const bool joined : {false, true})
    for (const AxisInfo& axis : table_.axes())
      if (joined == (!axis.parts.empty() || axis.kind == AxisKind::joined)) add_name(out, axis.name);
  return out;
}

}  // namespace heddle::mesh
