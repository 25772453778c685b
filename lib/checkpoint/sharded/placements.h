// The self-description of a shard file: which boxes of which tensors its entries are.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "heddle/base/export.h"

namespace heddle::checkpoint {

// The position of an entry; its shape is in the header.
struct Placement {
  std::string tensor;          // the name of the whole
  std::vector<int64_t> shape;  // of the whole
  std::vector<int64_t> offset;
  bool operator==(const Placement&) const = default;
};

// The key of __metadata__ that holds them, as JSON in a text: {"KEY": {"tensor", "shape", "offset"}, ...}.
inline constexpr const char* kPlacements = "heddle.boxes";

HEDDLE_API std::string written(const std::map<std::string, Placement>& by_key);

// Empty if the text is not such JSON.
HEDDLE_API std::optional<std::map<std::string, Placement>> read_placements(const std::string& text);

}  // namespace heddle::checkpoint
