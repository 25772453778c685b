// The plugins of one engine: found by the names in their manifests, admitted whole or not at all.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/base/export.h"
#include "heddle/base/log.h"
#include "heddle/plugin/offer.h"

namespace heddle {

struct PluginInfo {
  std::string name, version;
  std::filesystem::path path;       // empty: built into the engine
  std::vector<std::string> offers;  // "strategy NAME", "section NAME", ... with aliases in brackets
};

// A file libheddle_*.so of the search path, as its manifest describes it; nothing is opened.
struct PluginFile {
  struct Offer {
    std::string kind, name;  // "strategy", "fsdp2"
    std::vector<std::string> aliases;
    HEDDLE_API std::string text() const;  // "strategy acme (acme2, acme-two)"
    bool operator==(const Offer&) const = default;
  };
  std::filesystem::path path;
  std::string name, version;  // without a valid manifest: of the file's name, and empty
  std::vector<Offer> offers;
  std::string fault;  // why it cannot be loaded; empty: it can
};

// One per engine. Loaded libraries are never closed, because autograd nodes and hooks outlive any handle.
class HEDDLE_API PluginRegistry {
 public:
  // Searches the directories of `search_path` in order; manifests are read, nothing is opened yet. The
  // built-in "single" (a strategy, and a schedule) is always there.
  explicit PluginRegistry(std::vector<std::filesystem::path> search_path, Log log = {});
  ~PluginRegistry();
  PluginRegistry(PluginRegistry&&) noexcept;
  PluginRegistry& operator=(PluginRegistry&&) noexcept;

  // Loads a file, or a name in the search path. All of it is admitted, or none of it.
  // Throws Error{plugin_missing | plugin_abi | plugin_conflict | plugin_failed}.
  const PluginInfo& load(const std::string& file_or_name);

  // What is offered of a kind under a name or an alias, in any case; opens the plugin that has it. Null: not
  // found. find<OfferedStrategy>("fsdp2").
  const OfferedSchema* find(std::string_view kind, std::string_view name);
  template <class Offered>
  const Offered* find(std::string_view name) {
    return static_cast<const Offered*>(find(Offered::kKind, name));
  }
  const OfferedStrategy* strategy(std::string_view name) { return find<OfferedStrategy>(name); }
  const OfferedParallelizer* parallelizer(std::string_view name) { return find<OfferedParallelizer>(name); }
  const OfferedSchedule* schedule(std::string_view name) { return find<OfferedSchedule>(name); }
  const OfferedSection* section(std::string_view name) { return find<OfferedSection>(name); }
  const OfferedDevice* device(std::string_view name) { return find<OfferedDevice>(name); }
  const OfferedPlan* plan(std::string_view name) { return find<OfferedPlan>(name); }
  const OfferedModel* model(std::string_view model_type) { return find<OfferedModel>(model_type); }
  // The words of all kinds: "strategy", ...
  static std::vector<std::string> kinds();
  // Every name and alias of a kind ("strategy", "section", ...), sorted, from the manifests; nothing is
  // opened. Without the built-in "single".
  std::vector<std::string> names(std::string_view kind) const;
  // Error{plugin_missing} for a kind ("plugin", "strategy", ...) and an unknown name: the directories
  // searched, the names available, the nearest name.
  Error missing(std::string_view kind, std::string_view name) const;
  // All strategies, opened; for messages that list those with a property. Broken files are left out.
  std::vector<const OfferedStrategy*> all_strategies();

  std::vector<PluginInfo> loaded() const;  // with the built-in
  const std::vector<std::filesystem::path>& search_path() const;
  // Name, version and file digest of every loaded plugin, and the ABI tag: a part of the run's fingerprint.
  std::string fingerprint() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

namespace plugin {

// The search path of a run: directories that the YAML names (relative to it), HEDDLE_PLUGIN_PATH, and the
// folder "plugins" beside the engine.
HEDDLE_API std::vector<std::filesystem::path> search_path(std::span<const std::filesystem::path> from_yaml);

// The plugin files of the directories, in their order and sorted by name within each.
HEDDLE_API std::vector<PluginFile> files_in(const std::vector<std::filesystem::path>& search_path);

// The tag of this engine, which a plugin's must equal; see abi.h.
HEDDLE_API std::string_view abi_tag();

}  // namespace plugin
}  // namespace heddle
