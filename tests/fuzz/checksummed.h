// Repairs checksums, so that mutated inputs pass the checksum test.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/base/nesting.h"
#include "lib/checkpoint/safetensors/checksum.h"

namespace heddle::fuzz {

// Returns null unless the text is a JSON object that can be serialized again.
inline nlohmann::ordered_json parsed_object(std::string_view text) {
  if (text::nests_deeper(text, text::kDeepest)) return nullptr;
  nlohmann::ordered_json parsed = nlohmann::ordered_json::parse(text, nullptr, false);
  if (!parsed.is_object()) return nullptr;
  return parsed;
}

// Returns the text with its correct checksum.
inline std::string checksummed(std::string_view text) {
  nlohmann::ordered_json parsed = parsed_object(text);
  if (parsed.is_null()) return std::string(text);
  parsed.erase("checksum");
  parsed["checksum"] = checkpoint::checksum(parsed.dump());
  return parsed.dump();
}

}  // namespace heddle::fuzz
