// Token-by-token generation with and without a cache.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "lib/run/generate/generate.h"
#include "lib/run/generate/kv_cache.h"

namespace heddle::tests {

// Checks that units with equal parameters generate equal tokens with and without a cache, also past
// `longest`, where the context is restarted.
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
