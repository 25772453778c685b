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

heddle::Node keys(const std::string& more) {
  return heddle::config::read_text("{model_type: hello_type" + more + "}", "config.json");
}

// Checks that an exported model is read back as the same model, and that the error for a misspelt key names
// the right one.
void keys_come_back() {
  heddle::PluginRegistry plugins({PLUGINS});
  const auto spec = heddle::engine::read_model(keys(""), plugins);
  const heddle::Node written = heddle::config::read_text(spec->config_json("float32"), "exported");
  expect(heddle::engine::read_model(written, plugins)->signature() == spec->signature(),
         "an export is read back");
  try {
    heddle::engine::read_model(keys(", hiden_size: 32"), plugins);
    expect(false, "hiden_size is refused");
  } catch (const heddle::Error& error) {
    expect(error.hint().find("hidden_size") != std::string::npos,
           "hiden_size is refused, and hidden_size named");
  }
}

}  // namespace

int main() {
  expect(heddle::PluginRegistry({}).model("hello_type") == nullptr,
         "an empty registry has no model 'hello_type'");
  keys_come_back();
  const heddle::kits::Report kits = heddle::kits::check_plugin(PLUGINS "/libheddle_hello.so");
  std::cout << kits.text();
  expect(kits.passed(), "the conformance kits pass");
  return failures == 0 ? 0 : 1;
}
