// Finds the plugin files of directories with their manifests; nothing is opened.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/plugin/manifest.h"
#include "heddle/base/error.h"
#include "heddle/base/export.h"

namespace heddle::plugin {

// A file libheddle_*.so with its manifest, or why that is invalid.
struct FoundFile {
  std::filesystem::path path;
  size_t place = 0;  // which directory, from 0
  std::optional<PluginManifest> manifest;
  std::optional<Error> unreadable;

  HEDDLE_API std::string named_by_file() const;  // "acme" of libheddle_acme.so
};

// In the order of the search path, sorted by name within each; a file reachable twice counts once.
// Directories that do not exist are skipped.
HEDDLE_API std::vector<FoundFile> scan(const std::vector<std::filesystem::path>& search_path);

// The files that have the name, in the order of the search path. For kind "plugin" the name is the plugin's
// own; else it is the name or an alias of something on offer. A file without a valid manifest has the name of
// its file.
std::vector<const FoundFile*> find(const std::vector<FoundFile>& files, std::string_view kind,
                                   std::string_view name);

}  // namespace heddle::plugin
