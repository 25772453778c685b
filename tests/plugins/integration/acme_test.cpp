// An axis of a plugin equals `single`, under every strategy that reduces by parameter.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plugins/acme.h"
#include "plugins/toy_training.h"
#include "tests/main/with_all.h"

namespace heddle::tests {
namespace {

HEDDLE_WITH_ALL("Acme.EqualsSingle*");

using ::testing::HasSubstr;

// Replicas are data-parallel ranks too, so acme can use them.
TEST(Acme, EqualsSingleUnderEveryStrategy) {
  const Outcome want = train(toy("single", {}));
  const std::pair<const char*, int> cases[] = {
      {"[ddp|fsdp2] dp1", 1},
      {"[ddp|fsdp2] dp[3|6]", 3},
      {"fsdp2 dp4 replicas2", 2},
      {"fsdp2 dp4 replicas2", 4},
      {"ddp([gradient_as_bucket_view|static_graph|find_unused_parameters]: true) dp4", 2},
      {"ddp(bucket_cap_mb: 0, gradient_as_bucket_view: true) dp4", 2},
      {"fsdp2([reshard_after_forward: true|reshard_after_forward: false|defer_fsdp_grad_sync: false|"
       "enable_fsdp2_prefetch: true]) dp4",
       2},
      {"megatron_fsdp(zero_dp_strategy: [0|1|2|3]) dp2", 2},
      {"megatron_fsdp(zero_dp_strategy: [0|1|2|3]) dp6", 3}};
  for (const auto& [lines, acme] : cases)
    for (const std::string& line : alternatives(lines))
      for (const int microbatches : {1, 12}) {  // of all ranks together, if they are fewer
        SCOPED_TRACE(line + ", acme " + std::to_string(acme));
        Training one = toy("single", {});
        one.microbatches = microbatches;
        expect_close(train(over_acme(on(one, line), acme)), want);
      }
}

// Every rank has equal bits, which train() checks, and clipping uses the norm.
TEST(Acme, CountsEveryPartOnceInTheNorm) {
  Training alone = toy("single", {});
  alone.max_norm = 1e-2;
  const Outcome clipped = train(alone);
  for (const char* line : {"ddp dp4", "fsdp2 dp4"})
    expect_close(train(over_acme(on(alone, line), 2)), clipped);
}

std::string misuse(const std::string& line, Acme how) {
  return error_of([&] { train(over_acme(on(toy("single", {}), line), 2, how)); });
}

TEST(Acme, RefusesAnAxisWithoutAView) {
  EXPECT_THAT(
      misuse("fsdp2 dp4", {"ep"}),
      HasSubstr("places the parameter 'layer0.weight': the axis 'ep' is in no "
                "view of this mesh, which is dense (pp=1, dp_replicate=1, dp_shard=4, cp=1, tp=1), acme "
                "(pp=1, acme_shard=2, acme=2, tp=1)"));
  EXPECT_THAT(misuse("ddp dp4", {"acmee"}), HasSubstr("the axis 'acmee' is in no view"));
  EXPECT_THAT(misuse("ddp dp4", {"cp"}), HasSubstr("the axis 'cp' is in no view"));
}

TEST(Acme, RefusesAxesOfTwoViewsByName) {
  EXPECT_THAT(misuse("fsdp2 dp4", {"acme", true}),
              HasSubstr("places the parameter 'layer0.weight': the axes acme, dp_shard "
                        "are in no common view of this mesh"));
}

}  // namespace
}  // namespace heddle::tests
