// The size of an axis by its name, derived axes too.
#include "heddle/config/sizes.h"

#include "heddle/base/error.h"
#include "heddle/base/text.h"

namespace heddle {

int Sizes::of(std::string_view axis) const {
  const std::vector<std::pair<std::string, int>> all = {{"pp", pp},
                                                        {"dp", dp},
                                                        {"dp_replicate", dp_replicate},
                                                        {"dp_shard", dp_shard},
                                                        {"cp", cp},
                                                        {"tp", tp},
                                                        {"ep", ep},
                                                        {"ep_shard", ep_shard},
                                                        {"dp_cp", dp * cp},
                                                        {"dp_shard_cp", dp_shard * cp}};
  std::vector<std::string> names;
  for (const auto& [name, size] : all) {
    if (name == axis) return size;
    names.push_back(name);
  }
  const std::string near = text::nearest(axis, names);
  throw Error(ErrorCode::mesh, "mesh",
              "unknown axis '" + std::string(axis) + "'; the axes are " + text::join(names),
              near.empty() ? "" : "did you mean '" + near + "'?");
}

}  // namespace heddle
