// Registry of the kits for each kind of offer. Kits register themselves, so there is no list of kits.
#pragma once

#include <filesystem>
#include <string_view>

#include "attempt.h"
#include "core/plugin/manifest.h"
#include "heddle/plugin/registry.h"

namespace heddle::kits {

// The file under check, once the registry has admitted it.
struct CheckedPlugin {
  const std::filesystem::path& file;
  const plugin::PluginManifest& manifest;
  PluginRegistry& registry;
  const KitOptions& options;
};

// Properties of the kits of a kind.
struct KindRules {
  bool trains = true;        // they compute with each offer if they can
  bool takes_fields = true;  // KitOptions::fields are keys of the kind's offers
  bool on_device = true;     // they use KitOptions::device
};

// Registers the kits of a kind. Defined as a constant at namespace scope in a source of the kits, which are a
// shared library:
//   const KindKits kMetrics("metrics", [](const OfferedSchema& offered, const CheckedPlugin& plugin,
//   Attempts& attempt) { ... });
class KindKits {
 public:
  using Run = void (*)(const OfferedSchema& offered, const CheckedPlugin& plugin, Attempts& attempt);
  KindKits(std::string_view kind, Run run, KindRules rules = {});
  // Runs the kits of one offer. If its kind trains, at least one check of the offer trains; a check that is
  // not run gives the reason. Throws Error{internal} for a kind without kits.
  static void run(std::string_view kind, const OfferedSchema& offered, const CheckedPlugin& plugin,
                  Attempts& attempt);
  static bool takes_fields(std::string_view kind);
  // Returns whether the kits of the kind train on KitOptions::device.
  static bool trains_on_device(std::string_view kind);
};

}  // namespace heddle::kits
