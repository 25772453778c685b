// A plugin's manifest: what it is and was built for, read from the bytes of its file before anything is
// opened.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/plugin/registry.h"

namespace heddle::plugin {

// One offered thing, as the manifest declares it.
struct ManifestOffer : PluginFile::Offer {
  // Whether this is the name or an alias, in any case.
  HEDDLE_API bool answers_to(std::string_view word) const;
  bool operator==(const ManifestOffer&) const = default;
};

struct PluginManifest {
  std::string abi, name, version;
  std::vector<ManifestOffer> offers;  // never empty
  bool operator==(const PluginManifest&) const = default;
};

// Throws Error{plugin_failed} with the file's path: not an ELF file, cut, without a manifest, or with an
// invalid one.
HEDDLE_API PluginManifest read_manifest(const std::filesystem::path& file);

// The text of the section. `where` is for errors.
HEDDLE_API PluginManifest parse_manifest(std::string_view text, const std::string& where);

// Throws Error{plugin_abi} with both tags when the manifest is for another engine.
HEDDLE_API void check_abi(const PluginManifest& manifest, const std::filesystem::path& file);

}  // namespace heddle::plugin
