// The keys of a config.json as a Node, read like those of a YAML.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "heddle/base/export.h"
#include "heddle/config/node.h"

namespace heddle::checkpoint {

// Nodes name the file and the path of their key. Throws Error{input}: a file that cannot be read, is not
// JSON, is larger than 16 MiB or nests deeper than 32.
HEDDLE_API Node read_config_json(const std::filesystem::path& file);
// Parses a config.json from a text; `name` stands for the file in errors.
HEDDLE_API Node parse_config_json(std::string_view bytes, const std::string& name);

}  // namespace heddle::checkpoint
