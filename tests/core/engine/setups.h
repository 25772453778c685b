// Sections `distributed:` validated with the plugins of the build.
#pragma once

#include <string>

#include "heddle/engine/engine.h"
#include "tests/built_plugins.h"
#include "tests/thrown.h"

namespace heddle::tests {

// The section is written without its key: "{strategy: ddp}".
inline Setup setup_of(const std::string& section, int world) {
  return engine::validate(config::read_text("distributed: " + section + "\n", "run.yaml"), built_plugins(),
                          world);
}

// Ignores sections of parallelizers at size 1, as `heddle check --only distributed` does.
inline Setup dropped(const std::string& section, int world = 8) {
  return engine::validate(config::read_text("distributed: " + section + "\n", "run.yaml"), built_plugins(),
                          world, engine::IdleBlocks::dropped);
}

// Returns the setup as `heddle check --json` prints it.
inline Node json_of(const std::string& section, int world) {
  return config::read_text(engine::to_json(setup_of(section, world)), "json");
}

// Returns one of its values, by a path with dots: "strategy_config.mp_policy".
inline std::string printed(const std::string& section, int world, const std::string& path) {
  Node at = json_of(section, world);
  for (size_t from = 0; from <= path.size();) {
    const size_t dot = std::min(path.find('.', from), path.size());
    const Node* below = at.find(path.substr(from, dot - from));
    if (below == nullptr) return "no " + path;
    at = Node(*below);
    from = dot + 1;
  }
  return config::to_json(at);
}

// Returns the error of the section, or "" if it is accepted.
inline std::string refusal(const std::string& section, int world = 8) {
  return thrown_by([&] { setup_of(section, world); });
}

// Returns only the sentence, without "error[code] where: " and without the hint.
inline std::string sentence(const std::string& section, int world = 8) {
  try {
    setup_of(section, world);
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

}  // namespace heddle::tests
