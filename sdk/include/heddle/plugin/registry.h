// PluginRegistry, the plugins of one engine. It finds plugins by their manifests, and admits a plugin
// completely or not at all.
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

// A loaded plugin.
struct PluginInfo {
  std::string name, version;
  std::filesystem::path path;       // empty for plugins built into the engine
  std::vector<std::string> offers;  // "strategy NAME", "section NAME", ... with aliases in brackets
};

// A file libheddle_*.so of the search path, described by its manifest without opening the library.
struct PluginFile {
  struct Offer {
    std::string kind, name;  // "strategy", "fsdp2"
    std::vector<std::string> aliases;
    HEDDLE_API std::string text() const;  // "strategy acme (acme2, acme-two)"
    bool operator==(const Offer&) const = default;
  };
  std::filesystem::path path;
  std::string name, version;  // without a valid manifest: the name from the file name, and no version
  std::vector<Offer> offers;
  std::string fault;  // why it cannot be loaded; empty if it can
};

// The plugins of one engine. Loaded libraries are never closed, because autograd nodes and hooks outlive
// handles.
class HEDDLE_API PluginRegistry {
 public:
  // Searches the directories of `search_path` in order and reads manifests without opening libraries. The
  // built-in "single" (a strategy and a schedule) is always available.
  explicit PluginRegistry(std::vector<std::filesystem::path> search_path, Log log = {});
  ~PluginRegistry();
  PluginRegistry(PluginRegistry&&) noexcept;
  PluginRegistry& operator=(PluginRegistry&&) noexcept;

  // Loads a file, or a name in the search path. Admits all of its offers or none.
  // Throws Error{plugin_missing | plugin_abi | plugin_conflict | plugin_failed}.
  const PluginInfo& load(const std::string& file_or_name);

  // Returns the offer of a kind with this name or alias, ignoring case, or null. Opens the plugin that offers
  // it: find<OfferedStrategy>("fsdp2").
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
  // Returns the names of all kinds: "strategy", ...
  static std::vector<std::string> kinds();
  // Returns the sorted names and aliases of a kind ("strategy", "section", ...) from the manifests, without
  // opening libraries. Excludes the built-in "single".
  std::vector<std::string> names(std::string_view kind) const;
  // Returns Error{plugin_missing} for an unknown name of a kind ("plugin", "strategy", ...), with the
  // searched directories, the available names and the nearest one.
  Error missing(std::string_view kind, std::string_view name) const;
  // Opens and returns all strategies, for messages that list strategies with a property. Skips broken files.
  std::vector<const OfferedStrategy*> all_strategies();

  std::vector<PluginInfo> loaded() const;  // includes the built-in plugin
  const std::vector<std::filesystem::path>& search_path() const;
  // Returns name, version and file digest of every loaded plugin, and the ABI tag, as part of the run's
  // fingerprint.
  std::string fingerprint() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

namespace plugin {

// Returns the search path of a run: directories of the YAML (relative to it), HEDDLE_PLUGIN_PATH, and the
// folder "plugins" next to the engine.
HEDDLE_API std::vector<std::filesystem::path> search_path(std::span<const std::filesystem::path> from_yaml);

// Returns the plugin files of the directories, in the order of the directories, sorted by name within each.
HEDDLE_API std::vector<PluginFile> files_in(const std::vector<std::filesystem::path>& search_path);

// Returns the tag of this engine, which a plugin's tag must equal; see abi.h.
HEDDLE_API std::string_view abi_tag();

}  // namespace plugin
}  // namespace heddle
