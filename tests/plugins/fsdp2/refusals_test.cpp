// Refusals of fsdp2 with their messages, and refusals that all strategies share.
#include <gtest/gtest.h>

#include "plugins/toy_training.h"

namespace heddle::tests {
namespace {

// Every rank holds it whole, like CLIP's logit_scale.
TEST(Fsdp2, KeepsAParameterWithoutDimsWhole) {
  const auto with_scalar = [](Training run) {
    run.make_units = [](int) {
      Units units = toy_units({.meta = false});
      at::Tensor& scale = toy_at(units, 1).own[2].tensor;
      scale = scale.detach().squeeze().set_requires_grad(true);
      return units;
    };
    return run;
  };
  const auto want = gradients(with_scalar(toy("single", {})));
  for (const std::string fields : {"", "defer_fsdp_grad_sync: false\n", "reshard_after_forward: false\n"})
    for (const int replicas : {1, 2})
      expect_same(gradients(with_scalar(toy("fsdp2", shards(2, replicas), fields))), want);
}

TEST(Fsdp2, RefusesForeignTensorsThatCannotBeTied) {
  Training foreign = toy("single", {});
  foreign.make_units = [](int) {
    Units units = toy_units({.meta = false, .foreign = true});
    toy_at(units, 4).own[0].name = "embed.weight";
    return units;
  };
  for (const std::string strategy : {"fsdp2", "ddp", "megatron_fsdp"})
    EXPECT_EQ(error_of([&] { gradients(on(foreign, strategy + " dp2")); }),
              "error[input] " + strategy +
                  ": parameter 'embed.weight' has two slots with two tensors, which cannot be tied in place\n"
                  "  hint: let both modules hold one tensor, or give the slots two names");
}

TEST(Fsdp2, RefusesAnIntegerDtype) {
  EXPECT_EQ(error_of([] { gradients(toy("fsdp2", shards(1), "mp_policy: {param_dtype: int32}")); }),
            "error[config] distributed.mp_policy: 'int32' is not a dtype of parameters and gradients\n"
            "  hint: use float32, bfloat16, float16 or float64");
}

TEST(Fsdp2, RefusesAMeshWithUnsupportedAxes) {
  EXPECT_EQ(error_of([] {
              gradients(toy("fsdp2", {{"dp", 2}}));
            }),
            "error[mesh] fsdp2: this mesh has an axis dp of 2 ranks, which fsdp2 does not support\n"
            "  hint: name the axes pp, dp_replicate, dp_shard, cp, tp");
  EXPECT_EQ(
      error_of([] { gradients(toy("fsdp2", shards(1, 2))); }),
      "error[mesh] fsdp2: dp_replicate_size=2 must be less than dp_size=2 since DDP usecase is not supported "
      "by FSDP2\n"
      "  hint: use the strategy ddp");
}

}  // namespace
}  // namespace heddle::tests
