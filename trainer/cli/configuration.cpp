// A configuration file with the overrides of the command line.
#include "trainer/cli/configuration.h"

namespace heddle::cli {

Node read_configuration(const std::string& file, std::span<const Override> overrides) {
  Node root = config::read(file);
  for (const Override& one : overrides) root = config::with_override(root, one.key, one.value);
  return root;
}

}  // namespace heddle::cli
