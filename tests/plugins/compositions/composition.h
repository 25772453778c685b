// Random compositions of everything that can be combined, each a recipe that is a function of its seed.
#pragma once

#include <cstdint>
#include <string>

namespace heddle::tests {

// The sections of a recipe: those that decide the numbers, and the section `distributed:` that must not
// change them.
struct Composition {
  uint64_t seed = 0;
  int ranks = 1;
  std::string numbers;  // model, optimizer, batches, packing, freezing; without the paths of data and files
  std::string distributed;  // strategy, sizes of axes, blocks
  bool packed = false;      // trains on packed documents
  bool experts = false;
  bool low_precision = false;  // computes in bfloat16: compared loosely
};

Composition draw_composition(uint64_t seed);

}  // namespace heddle::tests
