// Missing gradients and foreign models, under fsdp2 and ddp.
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "plugins/toy_training.h"

namespace heddle::tests {
namespace {

TEST(Fsdp2, CountsAParameterUnusedOnOneRankAsZeroThere) {
  for (const std::vector<double>& used : {std::vector<double>{1, 0}, {0, 1}}) {
    Training whole = toy("single", {});
    whole.microbatches = 2;
    use_extra_where(whole, used);
    const Outcome want = train(whole);
    for (const char* reshard : {"null", "true", "false"}) {
      Training run = toy("fsdp2", shards(2), std::string("reshard_after_forward: ") + reshard);
      use_extra_where(run, used);
      expect_close(train(run), want);
    }
    Training run = toy("ddp", {{"dp", 2}});
    use_extra_where(run, used);
    expect_close(train(run), want);
  }
}

TEST(Fsdp2, StaysInStepWhenTheBackwardOfOneRankEndsEarly) {
  for (const std::vector<double>& used : {std::vector<double>{1, -1}, {-1, 1}}) {
    Training whole = toy("single", {});
    whole.microbatches = 2;
    use_extra_where(whole, used);
    const Outcome want = train(whole);
    for (const char* reshard : {"null", "true", "false"}) {
      SCOPED_TRACE(reshard);
      Training run = toy("fsdp2", shards(2), std::string("reshard_after_forward: ") + reshard);
      use_extra_where(run, used);
      expect_close(train(run), want);
    }
    Training run = toy("ddp", {{"dp", 2}});
    use_extra_where(run, used);
    expect_close(train(run), want);
  }
}

// Deep enough for reductions of one rank to wait for the other, which waits for nothing itself.
TEST(Fsdp2, StaysInStepWhenTheBackwardOfADeepModelEndsEarly) {
  Toy deep;
  deep.layers = 9;
  Training whole = toy("single", {}, "", deep);
  whole.microbatches = 2;
  whole.steps = 4;
  use_extra_where(whole, {1, -1});
  const Outcome want = train(whole);
  for (const char* more : {"", "reshard_after_forward: true", "reshard_after_forward: false",
                           "enable_fsdp2_prefetch: true\nfsdp2_backward_prefetch_depth: 0"}) {
    SCOPED_TRACE(more);
    Training run = toy("fsdp2", shards(2), more, deep);
    run.steps = 4;
    use_extra_where(run, {1, -1});
    expect_close(train(run), want);
  }
}

// Rows that divide by nothing, ranks with empty shards, gradients that some ranks do not have, several
// microbatches and replicas; every step is clipped.
TEST(Fsdp2, ClipsUnevenShardsWithMissingGradientsOverMicrobatches) {
  for (const auto& [ranks, replicas, microbatches] :
       {std::tuple{2, 1, 3}, std::tuple{3, 1, 1}, std::tuple{4, 1, 3}, std::tuple{2, 2, 1},
        std::tuple{2, 2, 3}}) {
    const int slices = ranks * replicas * microbatches;
    std::vector<double> used;
    for (int slice = 0; slice < slices; ++slice) used.push_back(slice % 3 == 1 ? 0 : slice % 5 == 2 ? -1 : 1);
    Training whole = toy("single", {});
    whole.microbatches = slices;
    whole.max_norm = 0.3;
    use_extra_where(whole, used);
    const Outcome want = train(whole);
    EXPECT_GT(*std::min_element(want.norms.begin(), want.norms.end()), whole.max_norm);
    for (const char* defer : {"true", "false"}) {
      SCOPED_TRACE(std::to_string(ranks) + " shards, " + std::to_string(replicas) + " replicas, " +
                   std::to_string(microbatches) + " microbatches, defer " + defer);
      Training run = toy("fsdp2", shards(ranks, replicas), std::string("defer_fsdp_grad_sync: ") + defer);
      run.microbatches = microbatches;
      run.max_norm = whole.max_norm;
      use_extra_where(run, used);
      expect_close(train(run), want);
    }
  }
}

// A whole step of two microbatches in which some unit never has a backward on some rank.
TEST(Fsdp2, StaysInStepOverMicrobatchesThatEndEarly) {
  const std::vector<double> used = {1, -1, -1, 1};
  Training whole = toy("single", {});
  whole.microbatches = 4;
  use_extra_where(whole, used);
  const Outcome want = train(whole);
  for (const char* defer : {"true", "false"}) {
    Training run = toy("fsdp2", shards(2), std::string("defer_fsdp_grad_sync: ") + defer);
    run.microbatches = 2;
    use_extra_where(run, used);
    expect_close(train(run), want);
  }
}

TEST(Fsdp2, LeavesAParameterThatNoRankUsedWithoutAGradient) {
  Training whole = toy("single", {});
  use_extra_where(whole, {0});
  const auto want = gradients(whole);
  EXPECT_EQ(want.count("layer1.extra"), 0u);
  for (Training run : {toy("fsdp2", shards(2)), toy("fsdp2", shards(1)), toy("ddp", {{"dp", 2}}),
                       toy("fsdp2", shards(1), "mp_policy: {param_dtype: float32, reduce_dtype: float64}")}) {
    use_extra_where(run, {0, 0});
    expect_same(gradients(run), want);
  }
}

TEST(Fsdp2, TrainsAForeignModelInPlace) {
  Toy foreign;
  foreign.meta = false;
  foreign.foreign = true;
  const Outcome want = train(toy("single", {}, "", foreign));
  for (const int ranks : {1, 2, 3}) expect_close(train(toy("fsdp2", shards(ranks), "", foreign)), want);
  Toy tied = foreign;
  tied.tied = true;
  expect_close(train(toy("fsdp2", shards(2), "", tied)), train(toy("single", {}, "", tied)));
}

TEST(Ddp, StartsAForeignModelFromTheValuesOfRankZero) {
  Toy foreign;
  foreign.meta = false;
  foreign.foreign = true;
  Training run = toy("ddp", {{"dp", 2}});
  run.make_units = [foreign](int rank) {
    Toy mine = foreign;
    mine.shift = rank;
    return toy_units(mine);
  };
  expect_close(train(run), train(toy("single", {}, "", foreign)));
}

TEST(Fsdp2, MakesTheReplicasOfAForeignModelEqual) {
  Toy foreign;
  foreign.meta = false;
  foreign.foreign = true;
  Training run = toy("fsdp2", shards(2, 2));
  run.make_units = [foreign](int rank) {
    Toy mine = foreign;
    mine.shift = rank / 2;  // the second replica
    return toy_units(mine);
  };
  expect_close(train(run), train(toy("single", {}, "", foreign)));
}

}  // namespace
}  // namespace heddle::tests
