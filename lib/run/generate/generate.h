// Text generation with a model's units.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/model/unit.h"
#include "lib/run/generate/kv_cache.h"

namespace heddle {

struct Sampling {
  double temperature = 1.0;  // 0: the most likely token (greedy)
  int64_t top_k = 0;         // sample from the k most likely tokens; 0: from all
  int64_t longest = 0;       // maximum number of tokens that the model sees; 0: all
  double top_p = 1.0;  // sample from the most likely tokens whose probabilities sum to top_p; 1: from all
  std::vector<int64_t> stop = {};  // generation stops after one of these tokens
};

// Maps tokens [1, length] to logits [1, at least 1, vocabulary], those of the last token at the end.
// Implemented by the units of a stage or by stage.forward().
using Logits = std::function<at::Tensor(const Batch& batch)>;

// Returns `prompt` and at most `count` new tokens; calls `each` with every new token. Equal seeds give equal
// tokens. With a cache, which must be set up for the model's units, the model sees each token once; without,
// every token needs a forward pass over the sequence. When `longest` is exceeded, the model continues from
// the last third of that many tokens. Throws Error{usage} for an empty prompt and for invalid values.
HEDDLE_API std::vector<int64_t> generate(const Logits& model, std::vector<int64_t> prompt, int64_t count,
                                         const Sampling& sampling, uint64_t seed, KvCache* cache = nullptr,
                                         const std::function<void(int64_t token)>& each = {});

// Returns the logits function of a chain of units.
HEDDLE_API Logits logits_of(Units& units);

}  // namespace heddle
