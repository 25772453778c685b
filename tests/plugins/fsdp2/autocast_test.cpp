// Training under fsdp2's autocast equals ddp's, whatever is freed and gathered.
#include <gtest/gtest.h>

#include "plugins/toy_training.h"

namespace heddle::tests {
namespace {

Training under_autocast(const std::string& strategy, std::vector<Axis> axes, const std::string& more = "") {
  Training run;
  run.model = odd_llama();
  run.strategy = strategy;
  run.section = "autocast_dtype: bfloat16\n" + (strategy == "fsdp2" ? kFloat : "") + more;
  run.axes = std::move(axes);
  return run;
}

// Over many steps a last-bit difference of a sum grows to one of bfloat16, so several ranks run few steps.
TEST(Fsdp2Autocast, EqualsDdpUnderAutocast) {
  for (const int microbatches : {1, 3}) {
    Training ddp = under_autocast("ddp", {{"dp", 1}});
    ddp.microbatches = microbatches;
    Training one = under_autocast("fsdp2", shards(1));
    one.microbatches = microbatches;
    const Outcome want = train(ddp);
    expect_bit_equal(train(one), want);
    ddp.axes = {{"dp", 2}};
    ddp.steps = 3;
    const Outcome of_two = train(ddp);
    const auto sums = gradients(ddp);
    for (const char* more : {"", "reshard_after_forward: true", "reshard_after_forward: false",
                             "enable_fsdp2_prefetch: true", "defer_fsdp_grad_sync: false"}) {
      SCOPED_TRACE(more);
      Training run = under_autocast("fsdp2", shards(2), more);
      run.microbatches = microbatches;
      run.steps = ddp.steps;
      expect_same(gradients(run), sums);
      expect_close(train(run), of_two);
    }
  }
}

TEST(Fsdp2Autocast, ComputesInALowerDtypeAndKeepsParameterDtypes) {
  Training plain = under_autocast("fsdp2", shards(2));
  plain.section = kFloat;
  const Outcome fp32 = train(plain), lower = train(under_autocast("fsdp2", shards(2)));
  EXPECT_NE(lower.losses[0], fp32.losses[0]);
  EXPECT_NEAR(lower.losses[0], fp32.losses[0], 1e-2 * fp32.losses[0]);
  for (const auto& [name, parameter] : lower.parameters)
    EXPECT_EQ(parameter.scalar_type(), at::kFloat) << name;
}

TEST(Fsdp2Autocast, GivesTheSameBitsUnderActivationCheckpointing) {
  const Outcome want = train(under_autocast("fsdp2", shards(2)));
  for (const auto mode : {ActivationCheckpointing::full, ActivationCheckpointing::selective}) {
    Training run = under_autocast("fsdp2", shards(2));
    run.checkpointing = mode;
    expect_bit_equal(train(run), want);
  }
}

TEST(Fsdp2Autocast, RefusesADtypeThatIsNotLower) {
  EXPECT_EQ(error_of([] { make_strategy("fsdp2", "autocast_dtype: float32"); }),
            "error[config] test.yaml:1 autocast_dtype: autocast_dtype must be bfloat16, float16 or null, got "
            "float32");
}

}  // namespace
}  // namespace heddle::tests
