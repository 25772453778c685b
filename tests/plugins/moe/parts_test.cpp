// Expert tensor parallelism trains as on one rank: alone, with expert and tensor parallelism, under every
// strategy and in pipelines.
#include <gtest/gtest.h>

#include "plugins/moe/runs.h"
#include "tests/main/with_all.h"

namespace heddle::tests {
namespace {

HEDDLE_WITH_ALL("ExpertTensorParallel.*");

// Experts with a width that two ranks can split.
Training of_width(Training run, int64_t width = 6) {
  run.model.mixture.width = width;
  return run;
}

TEST(ExpertTensorParallel, EqualsOneRankUnderEveryStrategy) {
  expect_equal_on(of_width(eight_experts()),
                  {"[fsdp2|ddp|megatron_fsdp|megatron] [dp2 ep1(allgather)|dp4 ep1(allgather)|dp4 "
                   "ep2(allgather)|dp4 ep2(alltoall)] etp2"});
}

TEST(ExpertTensorParallel, EqualsOneRankWithTensorParallelism) {
  expect_equal_on(of_width(eight_experts("mixtral"), 8),
                  {"[fsdp2|ddp] tp2 [dp1 ep1|dp2 ep1|dp2 ep2]" + kWays + " etp2",
                   "[fsdp2|ddp] tp2 dp2 ep1" + kWays + " etp4"});
}

// Interleaved columns of gate and up, biases of both projections, empty rows.
TEST(ExpertTensorParallel, EqualsOneRankWithBiases) {
  expect_equal_on(of_width(gpt_oss()), {"[fsdp2|ddp|megatron_fsdp] [dp2 ep1|dp4 ep1|dp4 ep2] etp2"});
  expect_equal_on(of_width(gpt_oss()), {"fsdp2 dp4 ep2" + kEmptyRows + " etp2"}, expect_close_without_drops);
}

TEST(ExpertTensorParallel, EqualsOneRankInPipelinesAndWithActivationCheckpointing) {
  expect_equal_on(of_width(eight_experts("qwen2_moe")),
                  {"[fsdp2|ddp] [dp2 ep1|dp4 ep2](alltoall) etp2 pp2([1f1b|zb1p])[| full| selective]"});
}

TEST(ExpertTensorParallel, GivesTheSameBitsTwice) {
  for (const std::string& line : alternatives("fsdp2 dp4 ep2" + kWays + " etp2"))
    expect_same_bits_twice(on(of_width(eight_experts()), line));
}

}  // namespace
}  // namespace heddle::tests
