// The views of a mesh: several layouts of the same ranks, with one look-up of axis names.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/mesh/layout.h"
#include "heddle/config/axes.h"

namespace heddle::mesh {

inline constexpr std::string_view kDense = "dense";

// Integers only, nothing is sent.
class HEDDLE_API Views {
 public:
  Views() = default;
  // Throws Error{mesh} for sizes that do not fit, and for an axis of two views.
  Views(std::span<const Axis> axes, int world_size, std::span<const View> views, AxisTable table);

  struct Found {
    const Layout* layout;
    std::vector<int> axes;  // of the layout; empty: each rank alone
  };
  Found find(std::string_view name) const;  // Throws Error{mesh} on an unknown name
  bool has(std::string_view name) const;

  const std::vector<std::pair<std::string, Layout>>& all() const { return layouts_; }
  const Layout& layout(std::string_view view) const;  // Throws Error{mesh} on an unknown one
  const AxisTable& table() const { return table_; }

  // The first view that has all of the axes; -1: none.
  int common(std::span<const std::string> axes) const;
  std::string axes_error(std::span<const std::string> axes) const;
  std::vector<int> parts(int view, std::span<const std::string> axes) const;
  std::string written() const;  // "dense (pp=1, dp=2), expert (ep_shard=1, ep=2)"

 private:
  bool parts_in(const Layout& layout, std::string_view name, std::vector<int>& out) const;
  std::vector<std::string> known() const;

  std::vector<std::pair<std::string, Layout>> layouts_;  // the strategy's mesh first
  AxisTable table_;
};

}  // namespace heddle::mesh
