// Access to the plugins of the build folder.
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

// Makes a plugin's component by kind and name, from the YAML text `section` if the component is configurable.
// Thread-safe, because the ranks of a test are threads.
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
