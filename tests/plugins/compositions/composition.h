// Random compositions of all features that can be combined. Each is a recipe that is a function of a seed.
#pragma once

#include <cstdint>
#include <string>

namespace heddle::tests {

// Sections of a recipe: those that determine the results, and the section `distributed:`, which must not
// affect them.
struct Composition {
  uint64_t seed = 0;
  int ranks = 1, ranks_before = 1;
  std::string numbers;      // model, optimizer, batches, packing, freezing; without paths of data and files
  std::string distributed;  // strategy, sizes of axes, sections of parallelizers
  std::string
      before;  // section `distributed:` of the first three steps, from which the run resumes; "": none
  bool packed = false;  // trains on packed documents
  bool chats = false;   // trains on conversations; with `packed`, on packed conversations
  bool experts = false;
  int rows = 1;                // per computed microbatch; fp8 has a scale for each
  bool low_precision = false;  // computes in bfloat16 or fp8: compared loosely
  bool fp8 = false;            // a bit that is rounded differently changes all later steps
};

Composition draw_composition(uint64_t seed);

}  // namespace heddle::tests
