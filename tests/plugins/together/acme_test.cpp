// An axis that a plugin brings, under every strategy that reduces by parameter: equal to `single`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plugins/acme.h"

namespace heddle::tests {
namespace {

using ::testing::HasSubstr;

const Outcome& want() {
  static const Outcome outcome = train(toy("single", {}));
  return outcome;
}

std::vector<Axis> dp(int ranks) {
  return {{"dp", ranks}};
}

TEST(Acme, TrainsAsSingleUnderDdp) {
  for (const auto& [ranks, acme] :
       {std::pair(1, 1), std::pair(2, 2), std::pair(3, 3), std::pair(4, 2), std::pair(4, 4), std::pair(6, 3)})
    for (const int microbatches : {1, 12 / ranks}) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks, acme " + std::to_string(acme));
      Training run = over_acme(toy("ddp", dp(ranks)), acme);
      run.microbatches = microbatches;
      expect_close(train(run), want());
    }
}

TEST(Acme, TrainsAsSingleUnderDdpWithEveryWayOfBuckets) {
  for (const char* section :
       {"gradient_as_bucket_view: true", "static_graph: true", "find_unused_parameters: true",
        "{bucket_cap_mb: 0, gradient_as_bucket_view: true}"}) {
    SCOPED_TRACE(section);
    expect_close(train(over_acme(toy("ddp", dp(4), section), 2)), want());
  }
}

TEST(Acme, TrainsAsSingleUnderMegatronFsdp) {
  for (const int zero : {0, 1, 2, 3})
    for (const auto& [ranks, acme] : {std::pair(2, 2), std::pair(4, 2), std::pair(6, 3)}) {
      SCOPED_TRACE("zero " + std::to_string(zero) + ", " + std::to_string(ranks) + " ranks, acme " +
                   std::to_string(acme));
      Training run = over_acme(toy("megatron_fsdp", {{"dp", ranks}, {"cp", 1}, {"tp", 1}},
                                   "zero_dp_strategy: " + std::to_string(zero)),
                               acme);
      run.microbatches = 12 / ranks;
      expect_close(train(run), want());
    }
}

TEST(Acme, TrainsAsSingleUnderFsdp2) {
  for (const auto& [ranks, acme] :
       {std::pair(1, 1), std::pair(2, 2), std::pair(3, 3), std::pair(4, 2), std::pair(4, 4), std::pair(6, 3)})
    for (const int microbatches : {1, 12 / ranks}) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks, acme " + std::to_string(acme));
      Training run = over_acme(toy("fsdp2", shards(ranks)), acme);
      run.microbatches = microbatches;
      expect_close(train(run), want());
    }
}

TEST(Acme, TrainsAsSingleUnderFsdp2WhateverStaysAndIsDeferred) {
  for (const char* more : {"reshard_after_forward: true\n", "reshard_after_forward: false\n",
                           "defer_fsdp_grad_sync: false\n", "enable_fsdp2_prefetch: true\n"}) {
    SCOPED_TRACE(more);
    Training run = over_acme(toy("fsdp2", shards(4), kFloat + more), 2);
    run.microbatches = 3;
    expect_close(train(run), want());
  }
}

// Replicas are data-parallel ranks as well: acme folds them too.
TEST(Acme, TrainsAsSingleUnderHybridSharding) {
  for (const int acme : {2, 4}) expect_close(train(over_acme(toy("fsdp2", shards(2, 2)), acme)), want());
}

// Every rank has the same numbers, bit by bit (train() compares them), and a clipped norm acts.
TEST(Acme, NormsCountEveryPartOnce) {
  Training alone = toy("single", {});
  alone.max_norm = 1e-2;
  const Outcome clipped = train(alone);
  for (const char* strategy : {"ddp", "fsdp2"}) {
    Training run = over_acme(toy(strategy, strategy == std::string("ddp") ? dp(4) : shards(4)), 2);
    run.max_norm = 1e-2;
    expect_close(train(run), clipped);
  }
}

std::string misuse(const std::string& strategy, std::vector<Axis> axes, Acme how, int acme = 2) {
  return error_of([&] { train(over_acme(toy(strategy, std::move(axes)), acme, how)); });
}

TEST(Acme, AnAxisThatStandsInNoViewIsRefusedByName) {
  EXPECT_THAT(
      misuse("fsdp2", shards(4), {"ep"}),
      HasSubstr("places the parameter 'layer0.weight': the axis 'ep' is in no "
                "view of this mesh, which is dense (pp=1, dp_replicate=1, dp_shard=4, cp=1, tp=1), acme "
                "(pp=1, acme_shard=2, acme=2, tp=1)"));
  EXPECT_THAT(misuse("ddp", dp(4), {"acmee"}), HasSubstr("the axis 'acmee' is in no view"));
  EXPECT_THAT(misuse("ddp", dp(4), {"cp"}), HasSubstr("the axis 'cp' is in no view"));
}

TEST(Acme, AxesOfTwoViewsAreRefusedByName) {
  EXPECT_THAT(misuse("fsdp2", shards(4), {"acme", true}),
              HasSubstr("places the parameter 'layer0.weight': the axes acme, dp_shard "
                        "are in no common view of this mesh"));
}

}  // namespace
}  // namespace heddle::tests
