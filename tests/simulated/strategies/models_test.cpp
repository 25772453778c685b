// Models with features beyond Llama on simulated GPUs: equal to the CPU in float32, close to it in bfloat16.
#include <gtest/gtest.h>

#include <cmath>

#include "simulated/trainings.h"

namespace heddle::tests {
namespace {

Training three_steps(Training run) {
  run.steps = 3;
  run.microbatches = 2;
  return run;
}

Training with_documents() {
  Training run = small();
  run.change_batch = pack;
  return run;
}

Training windowed() {
  Training run = small();
  run.model.sliding_window = 3;
  return run;
}

TEST(SimulatedModels, DeepSeekTrainsAsOnTheCpu) {
  expect_equal_on_gpus(three_steps(deepseek()));
  expect_equal_on_gpus(three_steps(sparse_deepseek()));
}

TEST(SimulatedModels, SigmoidRoutersTrainAsOnTheCpu) {
  Training run = three_steps(sigmoid_model("glm4_moe"));
  run.steps = 12;
  expect_equal_on_gpus(run);
}

// Flash attention and grouped products run only in bfloat16. Their rounding differs from the CPU kernels.
TEST(SimulatedModels, TrainInBfloat16NearTheCpu) {
  for (Training run : {small(), with_documents(), windowed(), three_steps(gpt_oss()), three_steps(deepseek()),
                       three_steps(eight_experts())}) {
    run = on(run, "fsdp2(" + kBfloat16 + ") dp2 calls2");
    const Outcome want = train(run);
    for (const auto policy : {simulated::Policy::late, simulated::Policy::random}) {
      simulated::Machine::get().begin(policy, 4);
      const Outcome got = train(on_gpus(run));
      EXPECT_THAT(simulated::Machine::get().reports(), ::testing::IsEmpty());
      ASSERT_EQ(got.losses.size(), want.losses.size());
      for (size_t step = 0; step < got.losses.size(); ++step) {
        EXPECT_NEAR(got.losses[step], want.losses[step], 2e-2 * want.losses[step]) << step;
        EXPECT_NEAR(got.norms[step], want.norms[step], 1e-1 * want.norms[step]) << step;
      }
    }
    const auto names = simulated::Machine::get().launches_by_name();
    EXPECT_TRUE(names.contains("heddle::flash_attention"));
    EXPECT_EQ(names.contains("heddle::grouped_product"), run.model.mixture.router.experts > 0);
  }
}

}  // namespace
}  // namespace heddle::tests
