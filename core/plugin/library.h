// Opens a plugin's file and asks its entry function for the offer.
#pragma once

#include <filesystem>
#include <string>

#include "core/plugin/manifest.h"
#include "heddle/plugin/offer.h"

namespace heddle::plugin {

// The manifest's ABI tag is compared first. The library stays open for good: autograd nodes and hooks outlive
// any handle. Throws Error{plugin_abi}, or Error{plugin_failed} with the plugin's name when the file does not
// open, was replaced since `manifest` was read, has no entry, or its entry throws.
Offer open(const PluginManifest& manifest, const std::filesystem::path& file);

// 16 hexadecimal digits of the file's bytes (FNV-1a), so that ranks notice another build of the same version.
// Throws Error{plugin_failed} when the file cannot be read.
std::string digest(const std::filesystem::path& file);

}  // namespace heddle::plugin
