// Missing gradients on uneven shards, and replicas of a foreign model. Behavior that all strategies share:
// together/every_strategy_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "plugins/toy_training.h"

namespace heddle::tests {
namespace {

// Row counts that no rank count divides, ranks with empty shards, gradients that some ranks do not have,
// several microbatches and replicas. Every step is clipped.
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

TEST(Fsdp2, MakesTheReplicasOfAForeignModelEqual) {
  const Toy foreign{.meta = false, .foreign = true};
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
