// The blocks of plugins under `distributed:`, and the section `dist_env:`.
#pragma once

#include <string>
#include <vector>

#include "core/engine/degrees.h"
#include "heddle/config/setup.h"
#include "heddle/plugin/registry.h"

namespace heddle::engine {

// One section that a plugin offers, with its value in the YAML.
struct Block {
  std::string key;  // its name in the YAML
  const OfferedSection* offered;
  const Node* value;  // null pointer: absent or null
  int degree;         // of its size key
};
using Blocks = std::vector<Block>;

// Every offered section, in the order of their sizes in messages.
Blocks find_blocks(const Node& section, const Degrees& degrees, PluginRegistry& plugins);

// Drops a block whose degree is 1 unread, with its plugin's warning where it has one.
void drop_idle(Blocks& blocks, std::vector<std::string>& warnings);

// Reads the blocks; fills Setup::sections and adds warnings for fields without effect at degree 1. Without a
// strategy, whose fields were then refused, nothing is derived from them. Throws Error{config}, of several
// blocks together.
void resolve_blocks(const Blocks& blocks, const Node& section, Setup& setup);

// Whether the sizes of the section's axis and of the others of its view are all 1.
bool is_idle(const OfferedSection& section, const Setup& setup);

// Adds to Setup::not_built the degrees and features of core that no plugin carries yet.
void note_what_comes_later(Setup& setup, PluginRegistry& plugins);

// Reads `dist_env: {backend, timeout_minutes}`; backends are gloo, nccl and the devices of plugins. Throws
// Error{config}.
void read_environment(const Node& configuration, Setup& setup, const PluginRegistry& plugins);

// Checks `_target_`, `_recursive_` and `_convert_`, which a recipe may have and which choose nothing: a
// `_target_` names a strategy and Config or Manager ("...MegatronFSDPConfig"). A warning where that is
// another strategy than `chosen`. Throws Error{config}.
void check_hydra_keys(const Node& section, const std::string& chosen, PluginRegistry& plugins,
                      std::vector<std::string>& warnings);

// ['a', 'b'], as in the recipes' messages.
std::string python_list(const std::vector<std::string>& words);

}  // namespace heddle::engine
