// The plugin's own test. It begins with the failure, so that a test that never loads anything cannot pass.
#include <iostream>

#include "heddle/testing/conformance.h"
#include "heddle/testing/strategy.h"

namespace {

int failures = 0;

void expect(bool holds, const std::string& what) {
  std::cout << (holds ? "ok    " : "FAIL  ") << what << "\n";
  failures += holds ? 0 : 1;
}

// Without the plugin's directory nobody knows the name.
void nobody_knows_it_yet() {
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

// A misspelt key is refused, and the right one is named.
void a_wrong_key_is_named(heddle::PluginRegistry& plugins) {
  const auto yaml = heddle::config::read_text("distributed: {strategy: hello, bucket_md: 4}", "wrong.yaml");
  try {
    heddle::engine::validate(yaml, plugins, 2);
    expect(false, "bucket_md is refused");
  } catch (const heddle::Error& error) {
    expect(error.hint().find("bucket_mb") != std::string::npos, "bucket_md is refused, and bucket_mb named");
  }
}

}  // namespace

int main() {
  nobody_knows_it_yet();
  const heddle::testing::Report door = heddle::testing::check_plugin(PLUGINS "/libheddle_hello.so");
  std::cout << door.text();
  expect(door.passed(), "the door's kit passes");

  heddle::PluginRegistry plugins({PLUGINS});
  a_wrong_key_is_named(plugins);
  const auto kits = {heddle::testing::equals_single, heddle::testing::equals_single_when_split,
                     heddle::testing::equals_single_when_recomputed};
  for (const auto& kit : kits)
    for (const int ranks : {1, 2, 3}) {
      const heddle::testing::Check same = kit("strategy: hello, bucket_mb: 1", plugins, ranks);
      expect(same.passed, same.rule + ": " + same.detail);
    }
  return failures == 0 ? 0 : 1;
}
