// The sizes as given, and as resolved against a world size.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heddle/config/axes.h"
#include "heddle/config/node.h"
#include "heddle/parallel/needs.h"

namespace heddle::engine {

inline bool has(const std::vector<std::string>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// The values of the section: null, 0 and negative numbers act as 1 (for dp as 0: the world divided by the
// others).
class Degrees {
 public:
  // Reads the keys of the table's axes. Throws Error{config} for a value that is neither an integer nor null.
  Degrees(const Node& section, const AxisTable& table);
  const AxisTable& table() const { return table_; }
  int of(std::string_view axis) const;          // 1 for an axis without a key
  int of_key(std::string_view size_key) const;  // the degree of "pp_size"; 1 for an unknown key

 private:
  AxisTable table_;
  std::vector<std::pair<std::string, int>> by_axis_;
};

// The strategy, for messages.
struct Asking {
  const Node& section;
  std::string strategy;                  // its own name
  std::vector<std::string> replicating;  // the strategies whose mesh has dp_replicate
};

// Checks the degrees against the strategy's needs and the world, in AutoModel's order.
// Throws Error{mesh}, with the numbers.
Sizes resolve_sizes(const Degrees& degrees, const Needs& needs, int world, const Asking& asking);

}  // namespace heddle::engine
