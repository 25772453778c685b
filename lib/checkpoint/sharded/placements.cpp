// Placements as JSON.
#include "lib/checkpoint/sharded/placements.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "core/base/nesting.h"

namespace heddle::checkpoint {
namespace {

using nlohmann::json;

// Empty if one is not a size: the JSON library would accept 1.5, and 2^64 as a negative number.
std::optional<std::vector<int64_t>> sizes_of(const json& list) {
  std::vector<int64_t> sizes;
  if (!list.is_array()) return std::nullopt;
  for (const json& size : list) {
    if (!size.is_number_unsigned() || size.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()})
      return std::nullopt;
    sizes.push_back(size.get<int64_t>());
  }
  return sizes;
}

}  // namespace

std::string written(const std::map<std::string, Placement>& by_key) {
  json out = json::object();
  for (const auto& [key, one] : by_key)
    out[key] = {{"tensor", one.tensor}, {"shape", one.shape}, {"offset", one.offset}};
  return out.dump();
}

std::optional<std::map<std::string, Placement>> read_placements(const std::string& said) {
  if (text::nests_deeper(said, text::kDeepest)) return std::nullopt;
  std::map<std::string, Placement> by_key;
  try {
    const json parsed = json::parse(said);
    for (const auto& [key, one] : parsed.items()) {
      auto shape = sizes_of(one.at("shape")), offset = sizes_of(one.at("offset"));
      if (!shape || !offset) return std::nullopt;
      by_key[key] = {one.at("tensor").get<std::string>(), std::move(*shape), std::move(*offset)};
    }
  } catch (const json::exception&) {
    return std::nullopt;
  }
  return by_key;
}

}  // namespace heddle::checkpoint
