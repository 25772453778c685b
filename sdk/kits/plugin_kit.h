// Checks of a plugin's file before any of its code runs, and of everything that the file offers.
#pragma once

#include <filesystem>

#include "attempt.h"
#include "core/plugin/manifest.h"
#include "heddle/plugin/registry.h"

namespace heddle::kits {

// Checks the manifest, the ABI tag, and admission to the registry. Returns false if nothing further can be
// checked.
bool run_file_kits(const std::filesystem::path& file, PluginRegistry& registry,
                   plugin::PluginManifest& manifest, Attempts& attempt);

// Checks the table of fields of one offer.
void run_schema_kits(const std::string& kind, const OfferedSchema& offered, Attempts& attempt);

// Checks the needs of a strategy. Returns false if the strategy is not built yet.
bool run_needs_kits(const OfferedStrategy& offered, Attempts& attempt);

}  // namespace heddle::kits
