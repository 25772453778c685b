// The plugin's own test. It first checks the failure without the plugin, so that a test that loads nothing
// cannot pass.
#include <iostream>

#include "heddle/testing/conformance.h"

int main() {
  if (heddle::PluginRegistry({}).find("metrics", "hello") != nullptr) return 1;
  const heddle::kits::Report kits = heddle::kits::check_plugin(PLUGINS "/libheddle_hello.so");
  std::cout << kits.text();
  return kits.passed() ? 0 : 1;
}
