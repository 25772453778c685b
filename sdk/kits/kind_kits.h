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

// What the kits of a kind do.
struct KindRules {
  bool trains = true;        // they compute with each offer, where they can
  bool takes_fields = true;  // KitOptions::fields are keys of its offers
  bool on_device = true;     // KitOptions::device matters to them
};

// A constant of namespace scope in the file of the kits, which are a shared library:
// const KindKits kMetrics("metrics", [](const OfferedSchema& offered, const CheckedPlugin& plugin, Attempts&
// attempt) { ... });
class KindKits {
 public:
  using Run = void (*)(const OfferedSchema& offered, const CheckedPlugin& plugin, Attempts& attempt);
  KindKits(std::string_view kind, Run run, KindRules rules = {});
  // Runs the kits of one offer. Where its kind trains, at least one check of the offer trains: one that is
  // not run says why. Throws Error{internal} where its kind has none.
  static void run(std::string_view kind, const OfferedSchema& offered, const CheckedPlugin& plugin,
                  Attempts& attempt);
  static bool takes_fields(std::string_view kind);
  // They train on KitOptions::device.
  static bool trains_on_device(std::string_view kind);
};

}  // namespace heddle::kits
