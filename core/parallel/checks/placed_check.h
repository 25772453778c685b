// Compares the parts that a parallelizer declares with those that it made; faults carry its name.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "heddle/mesh/device_mesh.h"
#include "heddle/model/unit.h"
#include "heddle/parallel/shard.h"

namespace heddle::parallel {

// The parts of all parallelizers, with their names for messages.
struct Split {
  std::vector<Placed> placed;
  std::vector<std::string> by;  // of each
  std::vector<int64_t> sizes;   // of each: of this rank's part along its dim
};

// The sizes of the units' parameters before a parallelizer acts.
class PlacedCheck {
 public:
  explicit PlacedCheck(const Units& units);
  // After it has acted on this rank. Throws Error{plugin_failed} with its name: a parameter that the units do
  // not have, a box that is not that of its tensor, a tensor that changed and is not placed.
  void check(const Units& units, const std::string& parallelizer, const std::vector<Placed>& placed) const;

 private:
  using Sizes = std::map<std::string, std::vector<int64_t>>;
  static Sizes sizes_of(const Units& units);
  Sizes before_;
};

// Once the shards of all ranks are known not to cover a parameter: throws Error{plugin_failed} with the name
// of the parallelizer whose ranks hold parts that overlap or leave gaps. A collective of every axis in
// `split`.
void check_tiles(const Split& split, const DeviceMesh& mesh);

}  // namespace heddle::parallel
