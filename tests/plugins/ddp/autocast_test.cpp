// Training under ddp's autocast: products in bfloat16, parameters and state in fp32.
#include <gtest/gtest.h>

#include "plugins/pipelines.h"
#include "plugins/toy_training.h"

namespace heddle::tests {
namespace {

Training autocast(std::vector<Axis> axes, const std::string& more = "") {
  Training run;
  run.model = odd_llama();
  run.model.num_attention_heads = 4;
  run.model.num_key_value_heads = 2;
  run.strategy = "ddp";
  run.section = "{autocast_dtype: bfloat16" + more + "}";
  run.axes = std::move(axes);
  run.microbatches = 3;
  return run;
}

TEST(DdpAutocast, TrainsFp32ParametersWithBfloat16Products) {
  const Outcome one = train(autocast({{"dp", 1}}));
  Training plain = autocast({{"dp", 1}});
  plain.section = "{}";
  const Outcome fp32 = train(plain);
  EXPECT_NE(one.losses[0], fp32.losses[0]);
  for (size_t step = 0; step < one.losses.size(); ++step)
    EXPECT_NEAR(one.losses[step], fp32.losses[step], 1e-2 * fp32.losses[step]);
  for (const auto& [name, parameter] : one.parameters) EXPECT_EQ(parameter.scalar_type(), at::kFloat) << name;
  const std::vector<std::vector<Axis>> worlds = {
      {{"dp", 2}}, {{"dp", 4}}, {{"dp", 2}, {"tp", 2}}, {{"pp", 2}, {"dp", 2}}};
  for (const auto& axes : worlds) {
    Training run = autocast(axes);
    if (axes.back().name == "tp") run.parallelizers = {{"tensor", "{}"}};
    if (axes.front().name == "pp") {
      run.make_schedule = [] { return make_schedule("1f1b"); };
      run.pipeline.microbatch_size = 3;
    }
    run.microbatches = 1;
    const Outcome many = train(run);
    EXPECT_NEAR(many.losses[0], one.losses[0], 1e-3 * one.losses[0]);
    for (size_t step = 0; step < one.losses.size(); ++step)
      EXPECT_NEAR(many.losses[step], one.losses[step], 1e-2 * one.losses[step]);
  }
}

TEST(DdpAutocast, GivesTheSameBitsUnderActivationCheckpointing) {
  const Outcome want = train(autocast({{"dp", 2}}, ", gradient_as_bucket_view: true"));
  for (const auto mode : {ActivationCheckpointing::full, ActivationCheckpointing::selective}) {
    Training run = autocast({{"dp", 2}}, ", gradient_as_bucket_view: true");
    run.checkpointing = mode;
    expect_bit_equal(train(run), want);
  }
}

TEST(DdpAutocast, RefusesADtypeThatIsNotLower) {
  EXPECT_EQ(error_of([] { make_strategy("ddp", "{autocast_dtype: float32}"); }),
            "error[config] test.yaml:1 autocast_dtype: autocast_dtype must be bfloat16, float16 or null, got "
            "float32");
}

}  // namespace
}  // namespace heddle::tests
