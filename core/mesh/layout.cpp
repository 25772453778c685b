// Ranks along axes, and refolding.
#include "core/mesh/layout.h"

#include <algorithm>
#include <cstdint>
#include <set>

#include "heddle/base/error.h"
#include "heddle/base/text.h"

namespace heddle::mesh {
namespace {

int product(std::span<const Axis> axes) {
  int64_t all = 1;
  for (const Axis& axis : axes) all = std::min<int64_t>(all * axis.size, INT32_MAX);
  return static_cast<int>(all);
}

// The distance in ranks between neighbours on axis i.
int stride(std::span<const Axis> axes, int i) {
  return product(axes.subspan(i + 1));
}

}  // namespace

std::string written(std::span<const Axis> axes) {
  std::vector<std::string> words;
  for (const Axis& axis : axes) words.push_back(axis.name + "=" + std::to_string(axis.size));
  return "(" + text::join(words) + ")";
}

int Layout::index_of(std::string_view name) const {
  for (size_t i = 0; i < axes.size(); ++i)
    if (axes[i].name == name) return static_cast<int>(i);
  return -1;
}

int Layout::world() const {
  return product(axes);
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

Layout Layout::refold(std::span<const int> chosen, std::span<const Axis> to) const {
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
      throw Error(ErrorCode::mesh, "mesh", "axis " + axis.name + " is repeated");
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
