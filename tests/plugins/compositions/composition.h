// Random compositions of everything that can be combined, each a recipe that is a function of its seed.
#pragma once

#include <cstdint>
#include <string>

namespace heddle::tests {

// The sections of a recipe: those that decide the numbers, and the section `distributed:` that must not
// change them.
struct Composition {
  uint64_t seed = 0;
  int ranks = 1, ranks_before = 1;
  std::string numbers;  // model, optimizer, batches, packing, freezing; without the paths of data and files
  std::string distributed;  // strategy, sizes of axes, blocks
  std::string before;  // the section `distributed:` of the first three steps, which the run resumes; "": none
  bool packed = false;  // trains on packed documents
  bool chats = false;   // trains on conversations; `packed`: on packs of them
  bool experts = false;
  int rows = 1;                // of a microbatch as it is computed: products in fp8 have a scale for each
  bool low_precision = false;  // computes in bfloat16 or fp8: compared loosely
  bool fp8 = false;            // a bit that is rounded the other way changes all steps after it
};

Composition draw_composition(uint64_t seed);

}  // namespace heddle::tests
