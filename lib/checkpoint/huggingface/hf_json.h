// JSON of the files of a model's directory, in the dialect of Python's json module.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "heddle/base/export.h"
#include "heddle/config/node.h"

namespace heddle::checkpoint {

// Parses a text in which NaN, Infinity and -Infinity are numbers, as Python writes them. The object
// {"__float__": "NaN"}, as transformers 5 writes them, is the same number. If a key occurs twice, its last
// value counts. `name` is the file's name in messages. Throws Error{input}: the text is not JSON, or nests
// deeper than text::kDeepest.
HEDDLE_API nlohmann::ordered_json parse_hf_json(std::string_view bytes, const std::string& name);
// Reads a file that must hold an object. Throws Error{input} as well if it is irregular, unreadable or larger
// than kLargestNote.
HEDDLE_API nlohmann::ordered_json read_hf_json(const std::filesystem::path& file);
// Returns nothing if the text is not JSON.
HEDDLE_API std::optional<nlohmann::ordered_json> hf_json_if_valid(std::string_view bytes);

// Writes NaN, Infinity and -Infinity as Python does; other values as nlohmann's dump() does. A negative
// indent writes one line.
HEDDLE_API std::string write_hf_json(const nlohmann::ordered_json& value, int indent = 2);

HEDDLE_API nlohmann::ordered_json to_hf_json(const Node& node);

}  // namespace heddle::checkpoint
