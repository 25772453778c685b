// Expert parallelism trains to the numbers of one rank, by every dispatcher.
#include <gtest/gtest.h>

#include "plugins/moe/runs.h"

namespace heddle::tests {
namespace {

const std::vector<std::string> kWays = {"allgather", "alltoall"};

// As many microbatches as ranks times those of a rank: four in all.
Training in_four(Training run, int ranks) {
  run.microbatches = 4 / ranks;
  return run;
}

TEST(ExpertParallel, EqualsOneRankUnderFsdp2) {
  for (const std::string& model : {"qwen3_moe", "qwen2_moe", "mixtral"}) {
    const Outcome want = train(eight_experts(model));
    for (const std::string& dispatcher : kWays)
      for (const auto& [ranks, ep] : {std::pair{2, 2}, {4, 2}, {4, 4}}) {
        SCOPED_TRACE(model + " " + dispatcher + " " + std::to_string(ranks) + " " + std::to_string(ep));
        expect_close(
            train(over_ep(in_four(eight_experts(model), ranks), mesh_of(1, ranks), ep, way(dispatcher))),
            want);
      }
  }
}

}  // namespace
}  // namespace heddle::tests
