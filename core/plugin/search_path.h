// The plugin files of some directories with their manifest; nothing is opened.
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

// A file libheddle_*.so, and what its manifest says, or why they do not read.
struct FoundFile {
  std::filesystem::path path;
  size_t place = 0;  // which directory, from 0
  std::optional<PluginManifest> manifest;
  std::optional<Error> unreadable;

  HEDDLE_API std::string named_by_file() const;  // "acme" of libheddle_acme.so
};

// In the order of the search path, sorted by name within each; a file reachable twice counts once. Places
// that do not exist hold nothing.
HEDDLE_API std::vector<FoundFile> scan(const std::vector<std::filesystem::path>& search_path);

// The files that have the name, in the order of the search path. For kind "plugin" the name is the plugin's
// own; else it is the name or an alias of something on offer. A file that does not read answers to the name
// of its file.
std::vector<const FoundFile*> find(const std::vector<FoundFile>& files, std::string_view kind,
                                   std::string_view name);

}  // namespace heddle::plugin
