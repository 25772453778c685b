// The sizes as they are asked for, and what they come to on a world of ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "heddle/config/node.h"
#include "heddle/config/sizes.h"
#include "heddle/parallel/needs.h"

namespace heddle::engine {

inline bool has(const std::vector<std::string>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// The `*_size` keys of the section, in the order in which they are read.
const std::vector<std::string>& size_keys();

// What stands in the section: null, 0 and negative numbers act as 1 (dp: as "find out").
struct Degrees {
  int dp = 0;  // 0: the world divided by the others
  int dp_replicate = 1, tp = 1, pp = 1, cp = 1, ep = 1;

  // The degree of a key such as "pp_size".
  int of(std::string_view key) const;
};

// Throws Error{config} for a value that is neither an integer nor null.
Degrees read_degrees(const Node& section);

// Who asks, for the messages.
struct Asking {
  const Node& section;
  std::string strategy;                  // its own name
  std::vector<std::string> replicating;  // the strategies whose mesh has dp_replicate
};

// Checks the degrees against the strategy's needs and the world, in AutoModel's order.
// Throws Error{mesh}, with the numbers.
Sizes resolve_sizes(const Degrees& degrees, const Needs& needs, int world, const Asking& asking);

}  // namespace heddle::engine
