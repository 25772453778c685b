// Banner lines about CPU threads and cores.
#include "lib/cost/processor.h"

#include <gtest/gtest.h>

#include "lib/cost/shared_cores.h"

namespace heddle {
namespace {

TEST(Processor, ThreadsThatShareCoresWaitPassively) {
  EXPECT_EQ(threads_text(2, 2, 2, "passive"),
            "  threads 2 on each of 2 ranks, more than the 2 cores: waiting is passive\n");
  EXPECT_EQ(threads_text(2, 1, 1, "PASSIVE"),
            "  threads 2 on each of 1 rank, more than the 1 core: waiting is passive\n");
  EXPECT_EQ(
      threads_text(2, 2, 2, "active"),
      "  threads 2 on each of 2 ranks, more than the 2 cores: waiting is not passive, as the environment "
      "says; OMP_WAIT_POLICY=passive is faster\n");
  EXPECT_EQ(threads_text(2, 1, 2, nullptr), "");
  EXPECT_EQ(threads_text(1, 4, 2, nullptr), "");  // a single thread waits for no other
}

TEST(Processor, ThreadsThatHaveTheirCoresSpinForAShortTime) {
  const auto said = [](std::optional<int> threads, int ranks, int cores) {
    const Waiting waiting = wait_setting(threads, ranks, cores);
    return std::string(waiting.variable) + "=" + waiting.value;
  };
  EXPECT_EQ(said({}, 2, 2), "GOMP_SPINCOUNT=5000");
  EXPECT_EQ(said(1, 2, 2), "GOMP_SPINCOUNT=5000");
  EXPECT_EQ(said(2, 1, 2), "GOMP_SPINCOUNT=5000");
  EXPECT_EQ(said(2, 2, 2), "OMP_WAIT_POLICY=passive");
}

TEST(Processor, SlowProductsAreNamedWithTheOverride) {
  EXPECT_EQ(
      slow_products("fsdp2", at::kBFloat16, at::kFloat, false),
      "products are in bfloat16 under fsdp2, and this processor has no instructions for bfloat16: steps "
      "take up to ten times as long as in float32; --distributed.mp_policy '{param_dtype: float32, "
      "reduce_dtype: float32}' computes in float32");
  EXPECT_EQ(slow_products("ddp", at::kBFloat16, at::kBFloat16, false),
            "products are in bfloat16 under ddp, and this processor has no instructions for bfloat16: steps "
            "take up to ten times as long as in float32; --model.dtype float32 computes in float32");
  EXPECT_EQ(slow_products("fsdp2", at::kBFloat16, at::kFloat, true), "");
  EXPECT_EQ(slow_products("fsdp2", at::kFloat, at::kFloat, false), "");
}

}  // namespace
}  // namespace heddle
