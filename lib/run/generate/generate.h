// Continuing a sequence of tokens with a model's units.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/model/unit.h"
#include "lib/run/generate/kv_cache.h"

namespace heddle {

struct Sampling {
  double temperature = 1.0;  // 0: the likeliest token
  int64_t top_k = 0;         // sample among the k likeliest; 0: among all
  int64_t longest = 0;       // the model sees at most so many tokens; 0: all
  double top_p = 1.0;        // sample among the likeliest that together have this probability; 1: among all
  std::vector<int64_t> stop = {};  // one of these is the last token
};

// Turns tokens [1, length] into logits [1, at least 1, vocabulary], the last token's last; the units of a
// stage, or stage.forward().
using Logits = std::function<at::Tensor(const Batch& batch)>;

// `prompt` and at most `count` new tokens; `each` is called with every new one. The same seed gives the same
// tokens. With a cache, which the model's units must be set up with, the model sees each token once; without,
// every token is a whole forward. Past `longest` tokens the model resumes from the last third of them. Throws
// Error{usage} for an empty prompt and for values that make no sense.
HEDDLE_API std::vector<int64_t> generate(const Logits& model, std::vector<int64_t> prompt, int64_t count,
                                         const Sampling& sampling, uint64_t seed, KvCache* cache = nullptr,
                                         const std::function<void(int64_t token)>& each = {});

// The logits of a chain of units.
HEDDLE_API Logits logits_of(Units& units);

}  // namespace heddle
