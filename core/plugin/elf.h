// Reads one named section out of a 64-bit ELF shared library, trusting nothing in it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace heddle::plugin {

// The bytes of the section; empty when the library has none of that name. Follows the System V ABI, "Object
// Files". Throws Error{plugin_failed}: no such file, not ELF, another machine, cut.
std::optional<std::string> read_section(const std::filesystem::path& file, std::string_view section);

}  // namespace heddle::plugin
