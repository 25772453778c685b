// Placements as JSON.
#include "heddle/checkpoint/placements.h"

#include <nlohmann/json.hpp>

namespace heddle::checkpoint {

std::string written(const std::map<std::string, Placement>& by_key) {
  nlohmann::ordered_json out = nlohmann::ordered_json::object();
  for (const auto& [key, one] : by_key)
    out[key] = {{"tensor", one.tensor}, {"shape", one.shape}, {"offset", one.offset}};
  return out.dump();
}

std::optional<std::map<std::string, Placement>> read_placements(const std::string& text) {
  std::map<std::string, Placement> by_key;
  try {
    const auto parsed = nlohmann::json::parse(text);
    for (const auto& [key, one] : parsed.items())
      by_key[key] = {one.at("tensor").get<std::string>(), one.at("shape").get<std::vector<int64_t>>(),
                     one.at("offset").get<std::vector<int64_t>>()};
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
  return by_key;
}

}  // namespace heddle::checkpoint
