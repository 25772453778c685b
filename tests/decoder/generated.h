// Tokens that are generated one by one, with what a cache keeps.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "lib/run/generate/generate.h"
#include "lib/run/generate/kv_cache.h"

namespace heddle::tests {

// Units of the same values give the same tokens with a cache and without, past `longest`, where the text
// begins anew.
inline void expect_same_tokens(Units& whole, Units& cached, int64_t longest = 9, int64_t count = 12) {
  EXPECT_EQ(KvCache::why_none(cached), "");
  KvCache cache(cached);
  Sampling greedy;
  greedy.temperature = 0;
  greedy.longest = longest;
  const std::vector<int64_t> want = generate(logits_of(whole), {1, 2, 3}, count, greedy, 0, nullptr, {});
  EXPECT_EQ(generate(logits_of(cached), {1, 2, 3}, count, greedy, 0, &cache, {}), want);
}

}  // namespace heddle::tests
