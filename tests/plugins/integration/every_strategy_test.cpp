// Behavior that all strategies share: missing gradients, foreign models, and equal bits.
#include <gtest/gtest.h>

#include "plugins/toy_training.h"

namespace heddle::tests {
namespace {

// A name, and the strategy with its fields.
using NamedStrategy = std::pair<const char*, const char*>;

const NamedStrategy kEvery[] = {
    {"ddp", "ddp"},
    {"ddp_small_buckets", "ddp(bucket_cap_mb: 0.0001, gradient_as_bucket_view: true)"},
    {"fsdp2", "fsdp2"},
    {"fsdp2_freed", "fsdp2(reshard_after_forward: true)"},
    {"fsdp2_kept", "fsdp2(reshard_after_forward: false)"},
    {"fsdp2_each_microbatch", "fsdp2(defer_fsdp_grad_sync: false)"},
    {"fsdp2_none_back",
     "fsdp2(reshard_after_forward: true, enable_fsdp2_prefetch: true, fsdp2_forward_prefetch_depth: 0, "
     "fsdp2_backward_prefetch_depth: 0)"},
    {"fsdp2_one_back",
     "fsdp2(reshard_after_forward: true, enable_fsdp2_prefetch: true, fsdp2_forward_prefetch_depth: 0, "
     "fsdp2_backward_prefetch_depth: 1)"},
    {"fsdp2_far_ahead",
     "fsdp2(reshard_after_forward: true, enable_fsdp2_prefetch: true, fsdp2_forward_prefetch_depth: 2, "
     "fsdp2_backward_prefetch_depth: 3)"},
    {"fsdp2_wide_sums", "fsdp2(mp_policy: {param_dtype: float32, reduce_dtype: float64})"},
    {"zero0", "megatron_fsdp(zero_dp_strategy: 0)"},
    {"zero1", "megatron_fsdp(zero_dp_strategy: 1)"},
    {"zero2", "megatron_fsdp(zero_dp_strategy: 2)"},
    {"zero3", "megatron_fsdp(zero_dp_strategy: 3)"},
    {"flat", "megatron(overlap_grad_reduce: true, bucket_size: 50)"},
    {"flat_distributed",
     "megatron(use_distributed_optimizer: true, overlap_grad_reduce: true, bucket_size: 50)"},
    {"by_unit",
     "megatron(use_megatron_fsdp: true, data_parallel_sharding_strategy: optim_grads_params, "
     "overlap_grad_reduce: true, overlap_param_gather: true)"}};

class EveryStrategy : public ::testing::TestWithParam<NamedStrategy> {
 protected:
  static Training on(int ranks, const Toy& shape = {}) {
    return tests::on(toy("single", {}, "", shape), GetParam().second + (" dp" + std::to_string(ranks)));
  }

  // Compares with one rank that has the slices of all ranks as microbatches. used: as use_extra_where() takes
  // it.
  static void expect_single(int ranks, const std::vector<double>& used, const Toy& shape = {}) {
    SCOPED_TRACE(::testing::PrintToString(used));
    Training whole = toy("single", {}, "", shape), run = on(ranks, shape);
    whole.microbatches = static_cast<int>(used.size());
    run.microbatches = whole.microbatches / ranks;
    whole.steps = run.steps = 4;
    use_extra_where(whole, used);
    use_extra_where(run, used);
    expect_close(train(run), train(whole));
  }
};

TEST_P(EveryStrategy, CountsAParameterUnusedOnOneRankAsZeroThere) {
  Toy deep;  // more layers than reductions in flight, so no rank waits for one that another has not started
  deep.layers = 9;
  for (const Toy& shape : {Toy(), deep}) {
    expect_single(2, {1, 0}, shape);
    expect_single(2, {0, 1}, shape);
  }
}

// Enough layers that reductions of one rank wait for the other rank, which waits for nothing.
TEST_P(EveryStrategy, DoesNotDeadlockIfTheBackwardOfOneRankEndsEarly) {
  Toy deep{.layers = 9};
  expect_single(2, {1, -1}, deep);
  expect_single(2, {-1, 1}, deep);
  expect_single(2, {1, -1, -1, 1}, deep);
}

TEST_P(EveryStrategy, GivesAParameterThatNoRankUsedNoGradient) {
  for (const int ranks : {1, 2}) {
    Training whole = toy("single", {}), run = on(ranks);
    use_extra_where(whole, {0});
    use_extra_where(run, {0, 0});
    const auto want = gradients(whole), got = gradients(run);
    EXPECT_EQ(got.size(), want.size());
    for (const auto& [name, gradient] : want) EXPECT_EQ(got.count(name), 1u) << name;
  }
}

TEST_P(EveryStrategy, TrainsAForeignModelInPlaceFromTheValuesOfRankZero) {
  for (const bool tied : {false, true}) {
    const Toy foreign{.meta = false, .foreign = true, .tied = tied};
    const Outcome want = train(toy("single", {}, "", foreign));
    for (const int ranks : {1, 2, 3}) {
      Training run = on(ranks, foreign);
      run.make_units = [foreign](int rank) {
        Toy mine = foreign;
        mine.shift = rank;
        return toy_units(mine);
      };
      expect_close(train(run), want);
    }
  }
}

// The toy has no layers whose adjacent weights are joined to one product.
TEST_P(EveryStrategy, EqualsTheBitsOfSingleOnOneRankAndRepeatsOnThree) {
  expect_bit_equal(train(on(1)), train(toy("single", {})));
  Training run = on(3);
  run.microbatches = 2;
  expect_same_bits_twice(run);
}

INSTANTIATE_TEST_SUITE_P(Of, EveryStrategy, ::testing::ValuesIn(kEvery),
                         [](const auto& info) { return info.param.first; });

}  // namespace
}  // namespace heddle::tests
