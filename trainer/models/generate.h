// Continuing a sequence of tokens with a model's units.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/model/unit.h"

namespace heddle {

struct Sampling {
  double temperature = 1.0;  // 0: the likeliest token
  int64_t top_k = 0;         // sample among the k likeliest; 0: among all
  int64_t longest = 0;       // the model sees at most so many last tokens; 0: all
};

// Turns tokens [1, length] into logits [1, length, vocabulary]; the units of a stage, or stage.forward().
using Logits = std::function<at::Tensor(const Batch& batch)>;

// `prompt` and `count` new tokens. The same seed gives the same tokens. Every token is a whole forward: there
// is no cache of keys and values. Throws Error{usage} for an empty prompt and for values that make no sense.
HEDDLE_API std::vector<int64_t> generate(const Logits& model, std::vector<int64_t> prompt, int64_t count,
                                         const Sampling& sampling, uint64_t seed);

// The logits of a chain of units.
HEDDLE_API Logits logits_of(Units& units);

}  // namespace heddle
