// The plugins of the build, and what they offer by name.
#pragma once

#include <filesystem>
#include <mutex>
#include <string>

#include "heddle/plugin/registry.h"

namespace heddle::tests {

inline PluginRegistry& built_plugins() {
  static PluginRegistry plugins({std::filesystem::path(HEDDLE_BINARY_DIR) / "plugins"});
  return plugins;
}

// What a plugin of that kind makes by name, of the YAML of its section if it takes one; ranks ask at the same
// time.
template <class Offered>
auto make_offered(const std::string& kind, const std::string& name, const std::string& section = "{}") {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  const auto* offered = built_plugins().find<Offered>(name);
  if (offered == nullptr) throw built_plugins().missing(kind, name);
  if constexpr (requires { offered->make(); })
    return offered->make();
  else
    return offered->make(config::read_text(section, "test.yaml"));
}

}  // namespace heddle::tests
