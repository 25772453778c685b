// Parallelizers are opened for their axes only where a key asks for an axis that the engine does not have.
#include "core/engine/axis_tables.h"

#include <algorithm>
#include <set>

#include "heddle/base/error.h"

namespace heddle::engine {

AxisTable axes_for(const Node& section, PluginRegistry& plugins) {
  AxisTable table;
  const auto& entries = section.entries();
  const bool asks = std::any_of(entries.begin(), entries.end(), [&](const auto& entry) {
    return entry.first.ends_with("_size") && table.with_key(entry.first) == nullptr;
  });
  if (!asks) return table;
  std::set<std::string> added;
  for (const std::string& name : plugins.names("parallelizer")) {
    const OfferedParallelizer* offered = plugins.parallelizer(name);
    if (offered == nullptr || !added.insert(offered->name).second) continue;  // by an alias
    table.add(offered->needs.new_axes, offered->needs.new_views, "the parallelizer '" + offered->name + "'");
  }
  return table;
}

std::vector<std::string> axis_keys_of_plugins(PluginRegistry& plugins) {
  std::vector<std::string> keys;
  Errors ignored;  // the message is about another error
  for (const std::string& name : plugins.names("parallelizer"))
    ignored.attempt([&] {
      const OfferedParallelizer* offered = plugins.parallelizer(name);
      if (offered == nullptr) return;
      for (const AxisInfo& axis : offered->needs.new_axes)
        if (!axis.key.empty()) keys.push_back(axis.key);
    });
  return keys;
}

}  // namespace heddle::engine
