// Axes, derived axes and refolding.
#include "heddle/mesh/layout.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <set>

#include "heddle/base/error.h"
#include "heddle/base/text.h"

namespace heddle::mesh {
namespace {

constexpr std::array<std::string_view, 7> kStandard = {"pp", "dp_replicate", "dp_shard", "cp",
                                                       "tp", "ep",           "ep_shard"};
constexpr std::array<std::string_view, 4> kDerived = {"dp", "dp_shard_cp", "dp_cp", "world"};

// The parts of a derived axis, outermost first, on a mesh that may have a `dp` of its own.
std::vector<std::string_view> parts_of(std::string_view name) {
  if (name == "dp") return {"dp_replicate", "dp_shard"};
  if (name == "dp_shard_cp") return {"dp_shard", "cp"};
  if (name == "dp_cp") return {"dp", "dp_replicate", "dp_shard", "cp"};
  return {};
}

std::string written(std::span<const Axis> axes) {
  std::vector<std::string> words;
  for (const Axis& axis : axes) words.push_back(axis.name + "=" + std::to_string(axis.size));
  return "(" + text::join(words) + ")";
}

int product(std::span<const Axis> axes) {
  int64_t all = 1;
  for (const Axis& axis : axes) all = std::min<int64_t>(all * axis.size, INT32_MAX);
  return static_cast<int>(all);
}

[[noreturn]] void unknown(std::string_view name, std::span<const Axis> axes) {
  std::vector<std::string> words;
  for (const Axis& axis : axes) words.push_back(axis.name);
  for (const auto* list : {kStandard.data(), kDerived.data()}) {
    const size_t count = list == kStandard.data() ? kStandard.size() : kDerived.size();
    for (size_t i = 0; i < count; ++i) {
      if (std::find(words.begin(), words.end(), list[i]) == words.end()) words.emplace_back(list[i]);
    }
  }
  const std::string near = text::nearest(name, words);
  throw Error(ErrorCode::mesh, "mesh",
              "unknown axis '" + std::string(name) + "'; the mesh is " + written(axes) + " and knows " +
                  text::join(words),
              near.empty() ? "" : "did you mean '" + near + "'?");
}

int index_of(std::span<const Axis> axes, std::string_view name) {
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

// The distance in ranks between neighbours on axis i.
int stride(std::span<const Axis> axes, int i) {
  return product(axes.subspan(i + 1));
}

}  // namespace

std::vector<int> Layout::find(std::string_view name) const {
  const int own = index_of(axes, name);
  if (own >= 0) return {own};
  std::vector<int> chosen;
  if (name == "world") {
    for (size_t i = 0; i < axes.size(); ++i) chosen.push_back(static_cast<int>(i));
    return chosen;
  }
  const auto parts = parts_of(name);
  if (parts.empty() && std::find(kStandard.begin(), kStandard.end(), name) == kStandard.end())
    unknown(name, axes);
  for (const std::string_view part : parts) {
    const int i = index_of(axes, part);
    if (i >= 0) chosen.push_back(i);
  }
  return chosen;
}

int Layout::size(std::span<const int> chosen) const {
  int all = 1;
  for (const int i : chosen) all *= axes[i].size;
  return all;
}

int Layout::place(std::span<const int> chosen, int rank) const {
  int at = 0;
  for (const int i : chosen) at = at * axes[i].size + rank / stride(axes, i) % axes[i].size;
  return at;
}

std::vector<int> Layout::ranks(std::span<const int> chosen, int rank) const {
  int first = rank;  // the rank with place 0 on every chosen axis
  for (const int i : chosen) first -= rank / stride(axes, i) % axes[i].size * stride(axes, i);
  std::vector<int> members = {first};
  for (const int i : chosen) {
    std::vector<int> wider;
    for (const int member : members) {
      for (int step = 0; step < axes[i].size; ++step) wider.push_back(member + step * stride(axes, i));
    }
    members = std::move(wider);
  }
  return members;
}

Layout Layout::refold(std::span<const std::string_view> from, std::span<const Axis> to) const {
  std::vector<int> chosen;
  for (const std::string_view name : from) {
    for (const int i : find(name)) chosen.push_back(i);
  }
  for (size_t i = 1; i < chosen.size(); ++i) {
    if (chosen[i] == chosen[i - 1] + 1) continue;
    throw Error(ErrorCode::mesh, "mesh",
                "axes that are refolded must be neighbours, in the order of " + written(axes));
  }
  if (size(chosen) != product(to)) {
    throw Error(ErrorCode::mesh, "mesh",
                std::to_string(size(chosen)) + " ranks cannot be refolded as " + written(to) +
                    "; the mesh is " + written(axes));
  }
  const int start = chosen.empty() ? static_cast<int>(axes.size()) : chosen.front();
  std::vector<Axis> folded(axes.begin(), axes.begin() + start);
  folded.insert(folded.end(), to.begin(), to.end());
  folded.insert(folded.end(), axes.begin() + start + static_cast<int>(chosen.size()), axes.end());
  return lay_out(folded, product(axes));
}

Layout lay_out(std::span<const Axis> axes, int world_size) {
  std::set<std::string> names;
  for (const Axis& axis : axes) {
    if (axis.size < 1) {
      throw Error(ErrorCode::mesh, "mesh",
                  "axis " + axis.name + " has size " + std::to_string(axis.size) + "; sizes are 1 or more");
    }
    if (!names.insert(axis.name).second)
      throw Error(ErrorCode::mesh, "mesh", "axis " + axis.name + " stands twice");
  }
  if (product(axes) != world_size) {
    throw Error(ErrorCode::mesh, "mesh",
                "the mesh " + written(axes) + " holds " + std::to_string(product(axes)) +
                    " ranks; the world has " + std::to_string(world_size),
                "start as many ranks as the product of the sizes, or change the sizes");
  }
  return Layout{{axes.begin(), axes.end()}};
}

}  // namespace heddle::mesh
