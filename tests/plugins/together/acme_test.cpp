// An axis that a plugin brings, under every strategy that reduces by parameter: equal to `single`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plugins/acme.h"
#include "plugins/across.h"

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

// Replicas are data-parallel ranks as well: acme folds them too.
TEST(Acme, TrainsAsSingleUnderEveryStrategy) {
  struct Case {
    Training run;
    int acme;
  };
  std::vector<Case> cases = {{toy("ddp", dp(1)), 1},          {toy("ddp", dp(3)), 3},
                             {toy("ddp", dp(6)), 3},          {toy("fsdp2", shards(1)), 1},
                             {toy("fsdp2", shards(3)), 3},    {toy("fsdp2", shards(6)), 3},
                             {toy("fsdp2", shards(2, 2)), 2}, {toy("fsdp2", shards(2, 2)), 4}};
  for (const char* fields :
       {"gradient_as_bucket_view: true", "static_graph: true", "find_unused_parameters: true",
        "{bucket_cap_mb: 0, gradient_as_bucket_view: true}"})
    cases.push_back({across(toy("ddp", {}), "ddp", {4}, fields), 2});
  for (const char* fields : {"reshard_after_forward: true", "reshard_after_forward: false",
                             "defer_fsdp_grad_sync: false", "enable_fsdp2_prefetch: true"})
    cases.push_back({across(toy("fsdp2", {}), "fsdp2", {4}, fields), 2});
  for (const char* zero : {"0", "1", "2", "3"})
    for (const int ranks : {2, 6})
      cases.push_back(
          {across(toy("", {}), "megatron_fsdp", {ranks}, "zero_dp_strategy: " + std::string(zero)),
           ranks == 2 ? 2 : 3});
  for (Case& one : cases) {
    int ranks = 1;
    for (const Axis& axis : one.run.axes) ranks *= axis.size;
    for (const int microbatches : {1, 12 / ranks}) {
      SCOPED_TRACE(one.run.strategy + " " + one.run.section + ", acme " + std::to_string(one.acme));
      one.run.microbatches = microbatches;
      expect_close(train(over_acme(one.run, one.acme)), want());
    }
  }
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
