// The engine's checks of a plugin's file before it runs any of its code, and of all that the file offers.
#pragma once

#include <filesystem>

#include "attempt.h"
#include "core/plugin/manifest.h"
#include "heddle/plugin/registry.h"

namespace heddle::kits {

// The manifest, the ABI tag, and admission to the registry. False if nothing further can be checked.
bool run_file_kits(const std::filesystem::path& file, PluginRegistry& registry,
                   plugin::PluginManifest& manifest, Attempts& attempt);

// The table of fields of one offered thing.
void run_schema_kits(const std::string& kind, const OfferedSchema& offered, Attempts& attempt);

// The strategy's needs. False if it cannot be made yet.
bool run_needs_kits(const OfferedStrategy& offered, Attempts& attempt);

}  // namespace heddle::kits
