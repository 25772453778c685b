// Data, tensor and pipeline parallelism on eight ranks: in bfloat16, and with equal bits in two runs.
// pairwise_test.cpp and pipeline/schedule_parity_test.cpp compare fp32 with one rank.
#include <gtest/gtest.h>

#include "plugins/topologies.h"
#include "tests/main/with_all.h"

namespace heddle::tests {
namespace {

HEDDLE_WITH_ALL("ThreeD.*");

// Compute in bfloat16, sums in float32. Rounding depends only on how sums are split over tp.
TEST(ThreeD, ComputesInBfloat16LikeTensorParallelismAlone) {
  const std::string half = "fsdp2(" + kBfloat16 + ")";
  for (const std::string tp : {" tp1", " tp2"}) {
    SCOPED_TRACE(tp);
    const Training few =
        on(four_heads("qwen3", 5), half + tp + " calls12");  // the pipeline's microbatches, one by one
    Training many = on(four_heads("qwen3", 5), half + tp + " dp2 pp2(1f1b) rows1");
    many.pipeline.dtype = "bfloat16";
    expect_close(train(many), train(few));
  }
}

TEST(ThreeD, GivesTheSameBitsTwice) {
  expect_same_bits_twice(on(four_heads("qwen3", 5), "fsdp2 dp2 tp2(sequence) pp2(1f1b) rows1"));
}

}  // namespace
}  // namespace heddle::tests
