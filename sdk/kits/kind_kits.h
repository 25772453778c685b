// Which kits check a plugin's offers of each kind. A kind's kits name themselves, so that nothing lists them.
#pragma once

#include <filesystem>
#include <string_view>

#include "attempt.h"
#include "core/plugin/manifest.h"
#include "heddle/plugin/registry.h"

namespace heddle::kits {

// The file that is checked, once the registry has admitted it.
struct CheckedPlugin {
  const std::filesystem::path& file;
  const plugin::PluginManifest& manifest;
  PluginRegistry& registry;
  const KitOptions& options;
};

// A constant of namespace scope in the file of the kits, which are a shared library:
// const KindKits kMetrics("metrics", [](const OfferedSchema& offered, const CheckedPlugin& plugin, Attempts&
// attempt) { ... });
class KindKits {
 public:
  using Run = void (*)(const OfferedSchema& offered, const CheckedPlugin& plugin, Attempts& attempt);
  KindKits(std::string_view kind, Run run);
  // Runs the kits of one offer. Throws Error{internal} where its kind has none.
  static void run(std::string_view kind, const OfferedSchema& offered, const CheckedPlugin& plugin,
                  Attempts& attempt);
};

}  // namespace heddle::kits
