// The table of the engine's own axes, and what plugins may add to it.
#include "heddle/config/axes.h"

#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/base/text.h"

namespace heddle {
namespace {

// Meshes, keys and names after NeMo AutoModel's FSDP2 mesh and its expert mesh.
std::vector<AxisInfo> own_axes() {
  using enum AxisKind;
  return {
      {"pp", stages, "pp_size", "pipeline parallelism", "", {}, false, &Sizes::pp, 1, 3},
      {"dp", data, "dp_size", "data parallelism", "", {"dp_replicate", "dp_shard"}, false, &Sizes::dp, 4, 0},
      {"dp_replicate", copies, "dp_replicate_size", "replicas", "", {}, false, &Sizes::dp_replicate, 5, 0},
      {"dp_shard", data, "", "sharding", "", {}, false, &Sizes::dp_shard},
      {"cp", data, "cp_size", "context parallelism", "", {}, true, &Sizes::cp, 2, 2},
      {"tp", model, "tp_size", "tensor parallelism", "", {}, true, &Sizes::tp, 0, 1},
      {"ep", model, "ep_size", "expert parallelism", "expert", {}, true, &Sizes::ep, 3, 0},
      {"ep_shard", data, "", "sharding of experts", "expert", {}, false, &Sizes::ep_shard},
      {"dp_shard_cp", joined, "", "", "", {"dp_shard", "cp"}, false},
      {"dp_cp", joined, "", "", "", {"dp", "cp"}, false},
      {"world", joined, "", "", "", {}, false},
  };
}

std::vector<ViewInfo> own_views() {
  return {{"expert", {"dp", "cp", "tp"}, "ep_shard", "non_pp_size"}};
}

bool is_name(const std::string& word) {
  return !word.empty() && std::all_of(word.begin(), word.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

bool alike(const AxisInfo& a, const AxisInfo& b) {
  return a.name == b.name && a.kind == b.kind && a.key == b.key && a.view == b.view && a.parts == b.parts;
}

bool alike(const ViewInfo& a, const ViewInfo& b) {
  return a.name == b.name && a.over == b.over && a.rest == b.rest;
}

[[noreturn]] void refuse(const std::string& who, const std::string& what, const std::string& hint) {
  throw Error(ErrorCode::plugin_failed, "plugin", who + " declares " + what, hint);
}

[[noreturn]] void refuse_twice(const std::string& who, const std::string& what) {
  throw Error(ErrorCode::plugin_conflict, "plugin",
              who + " declares " + what + ", which exists already and differs",
              "give the axis, its key and its view names of their own");
}

}  // namespace

AxisTable::AxisTable() : axes_(own_axes()), views_(own_views()) {}

const AxisTable& AxisTable::standard() {
  static const AxisTable table;
  return table;
}

const AxisInfo* AxisTable::find(std::string_view name) const {
  const auto found =
      std::find_if(axes_.begin(), axes_.end(), [&](const auto& one) { return one.name == name; });
  return found == axes_.end() ? nullptr : &*found;
}

const AxisInfo* AxisTable::with_key(std::string_view key) const {
  if (key.empty()) return nullptr;
  const auto found =
      std::find_if(axes_.begin(), axes_.end(), [&](const auto& one) { return one.key == key; });
  return found == axes_.end() ? nullptr : &*found;
}

const ViewInfo* AxisTable::view(std::string_view name) const {
  const auto found =
      std::find_if(views_.begin(), views_.end(), [&](const auto& one) { return one.name == name; });
  return found == views_.end() ? nullptr : &*found;
}

std::vector<std::string> AxisTable::names() const {
  std::vector<std::string> out;
  for (const AxisInfo& axis : axes_) out.push_back(axis.name);
  return out;
}

std::vector<const AxisInfo*> AxisTable::in_order_of_reading() const {
  std::vector<const AxisInfo*> out;
  for (const AxisInfo& axis : axes_)
    if (!axis.key.empty()) out.push_back(&axis);
  std::stable_sort(out.begin(), out.end(),
                   [](const AxisInfo* a, const AxisInfo* b) { return a->read < b->read; });
  return out;
}

void AxisTable::add(std::span<const AxisInfo> axes, std::span<const ViewInfo> views, const std::string& who) {
  for (const ViewInfo& view : views) add(view, who);
  for (const AxisInfo& axis : axes) add(axis, who);
}

void AxisTable::add(const AxisInfo& axis, const std::string& who) {
  const std::string thing = "the axis '" + axis.name + "'";
  if (!is_name(axis.name)) refuse(who, thing, "name it in small letters, digits and underscores");
  if (axis.kind != AxisKind::model || !axis.parts.empty() || axis.size != nullptr || axis.factor != 0)
    refuse(who, thing + " of another kind than model",
           "an axis of a plugin has a name, a key, the word for messages and a view");
  if (!is_name(axis.key) || !axis.key.ends_with("_size"))
    refuse(who, thing + " with the key '" + axis.key + "'", "a key ends in _size: " + axis.name + "_size");
  if (axis.parallelism.empty())
    refuse(who, thing + " without a word for messages", "set AxisInfo::parallelism");
  if (view(axis.view) == nullptr)
    refuse(who, thing + " in the view '" + axis.view + "', which does not exist",
           "declare the view in Needs::new_views, or name one of the engine's");
  if (const AxisInfo* known = find(axis.name); known != nullptr) {
    if (!alike(*known, axis)) refuse_twice(who, thing);
    return;
  }
  if (with_key(axis.key) != nullptr) refuse_twice(who, "the key '" + axis.key + "'");
  axes_.push_back(axis);
}

void AxisTable::add(const ViewInfo& view, const std::string& who) {
  const std::string thing = "the view '" + view.name + "'";
  if (!is_name(view.name)) refuse(who, thing, "name it in small letters, digits and underscores");
  if (const ViewInfo* known = this->view(view.name); known != nullptr) {
    if (!alike(*known, view)) refuse_twice(who, thing);
    return;
  }
  if (view.over.empty()) refuse(who, thing + " over no axis", "name in `over` the axes that it refolds");
  for (const std::string& name : view.over) {
    const AxisInfo* axis = find(name);
    if (axis == nullptr || axis->kind == AxisKind::stages || axis->kind == AxisKind::joined ||
        !axis->view.empty())
      refuse(who, thing + " over '" + name + "'",
             "a view refolds neighbours of dp, cp and tp, in this order");
  }
  if (!is_name(view.rest)) refuse(who, thing + " without a rest", "name the axis of the ranks left over");
  if (find(view.rest) != nullptr) refuse_twice(who, "the axis '" + view.rest + "'");
  views_.push_back(view);
  axes_.push_back({view.rest, AxisKind::data, "", "sharding of " + view.name, view.name, {}, false});
}

std::vector<View> views_of(const Sizes& sizes, const AxisTable& table) {
  std::vector<View> out;
  for (const ViewInfo& info : table.views()) {
    View view{info.name, info.over, {{info.rest, sizes.of(info.rest)}}};
    bool used = false;
    for (const AxisInfo& axis : table.axes()) {
      if (axis.view != info.name || axis.key.empty()) continue;
      view.axes.push_back({axis.name, sizes.of(axis.name)});
      used = used || view.axes.back().size > 1;
    }
    if (used) out.push_back(std::move(view));
  }
  return out;
}

}  // namespace heddle
