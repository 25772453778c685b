// The plugin's own test. It first checks the failure without the plugin, so that a test that loads nothing
// cannot pass.
#include <iostream>

#include "heddle/engine/engine.h"
#include "heddle/testing/conformance.h"

namespace {

int failures = 0;

void expect(bool holds, const std::string& what) {
  std::cout << (holds ? "ok    " : "FAIL  ") << what << "\n";
  failures += holds ? 0 : 1;
}

// Checks that the name is unknown without the plugin's directory.
void the_name_is_unknown_elsewhere() {
  heddle::PluginRegistry nowhere({});
  expect(nowhere.strategy("hello") == nullptr, "an empty registry has no strategy 'hello'");
  try {
    nowhere.load("hello");
    expect(false, "loading 'hello' from nowhere is an error");
  } catch (const heddle::Error& error) {
    expect(error.code() == heddle::ErrorCode::plugin_missing,
           "loading 'hello' from nowhere is plugin_missing");
  }
}

// Checks that a misspelt key is refused, and that the error names the right one.
void a_wrong_key_is_named() {
  heddle::PluginRegistry plugins({PLUGINS});
  const auto yaml = heddle::config::read_text("distributed: {strategy: hello, prefech: 2}", "wrong.yaml");
  try {
    heddle::engine::validate(yaml, plugins, 2);
    expect(false, "prefech is refused");
  } catch (const heddle::Error& error) {
    expect(error.hint().find("prefetch") != std::string::npos, "prefech is refused, and prefetch named");
  }
}

}  // namespace

int main() {
  the_name_is_unknown_elsewhere();
  a_wrong_key_is_named();
  const heddle::kits::Report kits = heddle::kits::check_plugin(PLUGINS "/libheddle_hello.so");
  std::cout << kits.text();
  expect(kits.passed(), "the conformance kits pass");
  return failures == 0 ? 0 : 1;
}
