// The size of an axis by its name, joined ones too.
#include "heddle/config/axes.h"

#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/base/text.h"

namespace heddle {

int Sizes::of(std::string_view axis) const {
  const auto brought =
      std::find_if(plugin_axes.begin(), plugin_axes.end(), [&](const Axis& one) { return one.name == axis; });
  if (brought != plugin_axes.end()) return brought->size;
  if (axis == kWorldAxis) return world;
  if (const AxisInfo* info = AxisTable::standard().find(axis); info != nullptr) {
    if (info->size != nullptr) return this->*info->size;
    int product = 1;
    for (const std::string& part : info->parts) product *= of(part);
    return product;
  }
  std::vector<std::string> names = AxisTable::standard().names();
  for (const Axis& one : plugin_axes) names.push_back(one.name);
  const std::string near = text::nearest(axis, names);
  throw Error(ErrorCode::mesh, "mesh",
              "unknown axis '" + std::string(axis) + "'; the axes are " + text::join(names),
              near.empty() ? "" : "did you mean '" + near + "'?");
}

}  // namespace heddle
