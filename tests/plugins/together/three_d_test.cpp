// Data, tensor and pipeline parallelism on eight ranks: in bfloat16, and the same bits twice. In fp32 they
// are compared with one rank in pairwise_test.cpp and pipeline/schedule_parity_test.cpp.
#include <gtest/gtest.h>

#include "plugins/across.h"

namespace heddle::tests {
namespace {

Training one_rank_3d() {
  Training run = four_heads("qwen3");
  run.model.num_hidden_layers = 5;
  return run;
}

// Compute in bfloat16, sums in float32. Rounding depends on how sums are split over tp, and on nothing else.
TEST(ThreeD, ComputesInBfloat16AsWithoutStagesAndShards) {
  const std::string half = "mp_policy: {param_dtype: bfloat16, reduce_dtype: float32}";
  for (const int tp : {1, 2}) {
    SCOPED_TRACE(std::to_string(tp) + " tensor-parallel ranks");
    Training few = across(one_rank_3d(), "fsdp2", {1, tp}, half),
             many = staged(across(one_rank_3d(), "fsdp2", {2, tp, 2}, half), "1f1b", 1);
    few.microbatches = 12;  // those of the pipeline, one by one
    many.pipeline.dtype = "bfloat16";
    if (tp == 2) few.parallelizers = many.parallelizers = {{"tensor", "{}"}};
    expect_close(train(many), train(few));
  }
}

TEST(ThreeD, GivesTheSameBitsTwice) {
  Training run = staged(across(one_rank_3d(), "fsdp2", {2, 2, 2}), "1f1b", 1);
  run.parallelizers = {{"tensor", kSequence}};
  expect_bit_equal(train(run), train(run));
}

}  // namespace
}  // namespace heddle::tests
