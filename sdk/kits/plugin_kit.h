// What the engine asks of a plugin's file before it runs anything of it, and of all that the file offers.
#pragma once

#include <filesystem>

#include "attempt.h"
#include "core/plugin/manifest.h"
#include "heddle/plugin/registry.h"

namespace heddle::kits {

// The manifest, the ABI tag, and admission to the registry. False where nothing further can be checked.
bool run_file_kits(const std::filesystem::path& file, PluginRegistry& registry,
                   plugin::PluginManifest& manifest, Attempts& attempt);

// The table of fields of anything on offer.
void run_schema_kits(const std::string& kind, const OfferedSchema& offered, Attempts& attempt);

// What the strategy says of itself. False where it cannot be made yet.
bool run_needs_kits(const OfferedStrategy& offered, Attempts& attempt);

}  // namespace heddle::kits
