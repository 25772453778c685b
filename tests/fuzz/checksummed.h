// Lets a changed input come past the checksum that would refuse it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/base/nesting.h"
#include "lib/checkpoint/safetensors/checksum.h"

namespace heddle::fuzz {

// Null where the text is no JSON object that a program may print.
inline nlohmann::ordered_json parsed_object(std::string_view text) {
  if (text::nests_deeper(text, text::kDeepest)) return nullptr;
  nlohmann::ordered_json parsed = nlohmann::ordered_json::parse(text, nullptr, false);
  if (!parsed.is_object()) return nullptr;
  return parsed;
}

// The text with the checksum that it should have.
inline std::string checksummed(std::string_view text) {
  nlohmann::ordered_json parsed = parsed_object(text);
  if (parsed.is_null()) return std::string(text);
  parsed.erase("checksum");
  parsed["checksum"] = checkpoint::checksum(parsed.dump());
  return parsed.dump();
}

}  // namespace heddle::fuzz
