// Reads a configuration file and applies the overrides of the command line.
#include "trainer/cli/configuration.h"

#include <array>

#include "lib/run/recipe/recipe.h"

namespace heddle::cli {

Node with_overrides(Node root, std::span<const Override> overrides) {
  for (const Override& one : overrides) root = config::with_override(root, one.key, one.value);
  return root;
}

Node read_configuration(const std::string& file, std::span<const Override> overrides) {
  return with_overrides(config::read(file), overrides);
}

PluginRegistry plugins_of_file(const std::string& file) {
  static const std::array<std::string, 1> kRead = {"plugins"};
  return open_plugins(file.empty() ? Node::map({}) : config::read_only(file, kRead), Log::to_stderr(0));
}

}  // namespace heddle::cli
