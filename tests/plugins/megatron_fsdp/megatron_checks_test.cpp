// Messages of megatron_fsdp and megatron about non-finite gradients and invalid settings.
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plugins/megatron_runs.h"

namespace heddle::tests {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

// Multiplies the gradient of the embedding on one rank, from the `from`-th backward on.
Training spoiled(Training run, int where, double factor, int from = 0) {
  run.make_units = [=](int rank) {
    Units units = toy_units({});
    if (rank == where)
      toy_at(units, 1).before = [=, seen = std::make_shared<int>(0)](const Tensors& inputs) {
        if (!inputs[0].requires_grad()) return;
        inputs[0].register_hook([=](const at::Tensor& gradient) {
          if ((*seen)++ < from) return gradient;
          return std::isinf(factor) ? gradient * 0 + factor : gradient * factor;
        });
      };
    return units;
  };
  return run;
}

TEST(MegatronFsdp, NamesTheParameterRankAndMicrobatchOfANonFiniteGradient) {
  for (int strategy = 0; strategy <= 3; ++strategy) {
    Training run = toy_like(mfsdp(2, zero(strategy, "report_nan_in_param_grad: true")));
    run.microbatches = 3;
    EXPECT_EQ(
        error_of([&] { gradients(spoiled(run, 1, std::nan(""), 2)); }),
        "error[input] megatron_fsdp: the gradient of a parameter is not finite on rank 1 after "
        "microbatch 2: embed.weight (NaN)\n"
        "  hint: check the samples of that microbatch, or set report_nan_in_param_grad: false to continue");
  }
}

TEST(Megatron, NamesTheBucketParametersAndRankOfNonFiniteGradients) {
  Training run =
      toy_like(megatron(2,
                        "use_distributed_optimizer: true\noverlap_grad_reduce: true\nbucket_size: 60\n"
                        "check_for_nan_in_grad: true"));
  EXPECT_EQ(
      error_of([&] { gradients(spoiled(run, 0, HUGE_VAL)); }),
      "error[input] megatron: bucket 7 on rank 0 has gradients that are not finite: embed.weight (Inf)\n"
      "  hint: check the batch and the learning rate, or set check_for_nan_in_grad: false to continue");
}

TEST(Megatron, ContinuesWithNaNWithoutChecks) {
  Training run = toy_like(megatron(2, "{}"));
  EXPECT_EQ(error_of([&] { gradients(spoiled(run, 0, std::nan(""))); }), "no error");
}

TEST(Megatron, WarnsOfLargeGradients) {
  Training run = toy_like(megatron(2, "check_for_large_grads: true"));
  run.steps = 104;
  EXPECT_THAT(train(run).warnings, Not(Contains(HasSubstr("the gradients of bucket"))));
  const Outcome got = train(spoiled(run, 1, 1e5, 102));
  EXPECT_THAT(got.warnings, Contains(HasSubstr("the gradients of bucket 0 have the norm ")));
  EXPECT_THAT(got.warnings, Contains(HasSubstr("but the first 100 had at most ")));
  EXPECT_THAT(got.warnings, Contains(HasSubstr("its first parameter is embed.weight")));
}

TEST(MegatronFsdp, WarnsOfParametersThatStayWhole) {
  Training run = toy_like(mfsdp(2, zero(1)));
  run.steps = 3;
  EXPECT_EQ(train(run).warnings,
            std::vector<std::string>{"zero_dp_strategy is 1, not 3: every rank holds whole parameters"});
  run.section = zero(3);  // check_for_nan_in_grad is true by default, which causes no warning
  EXPECT_TRUE(train(run).warnings.empty());
}

TEST(Megatron, RefusesAMeshWithUnsupportedAxes) {
  EXPECT_EQ(error_of([] {
              Training run = megatron(2, "{}");
              run.axes = {{"dp", 2}};
              gradients(run);
            }),
            "error[mesh] megatron: this mesh has an axis dp of 2 ranks, which megatron does not support\n"
            "  hint: name the axes pp, dp_replicate, dp_shard, cp, tp");
  EXPECT_EQ(
      error_of([] {
        gradients(megatron(2, "use_distributed_optimizer: true\nnum_distributed_optimizer_instances: 2"));
      }),
      "error[mesh] megatron: num_distributed_optimizer_instances is 2, but dp_replicate_size is 1\n"
      "  hint: set dp_replicate_size: 2");
  EXPECT_EQ(error_of([] {
              gradients(megatron(1, fsdp("optim_grads_params", "outer_dp_sharding_strategy: optim"), 2));
            }),
            "error[mesh] megatron: outer_dp_sharding_strategy: optim needs several ranks in dp_shard, but "
            "dp_replicate_size leaves only one\n"
            "  hint: set a smaller dp_replicate_size");
}

TEST(Megatron, RefusesAnIntegerDtype) {
  EXPECT_EQ(error_of([] { gradients(megatron(2, fsdp("optim", "megatron_fsdp_main_grads_dtype: int32"))); }),
            "error[config] distributed.megatron_fsdp_main_grads_dtype: 'int32' is not a dtype of parameters "
            "and gradients\n  hint: use float32, bfloat16, float16 or float64");
}

}  // namespace
}  // namespace heddle::tests
