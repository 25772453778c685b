// Experts in every schedule, whole and split backwards, against one rank.
#include <gtest/gtest.h>

#include "plugins/moe/runs.h"

namespace heddle::tests {
namespace {

// Microbatches of three sequences on every topology, because a balance loss is a mean over one.
Training experts_of(int layers) {
  Training run = eight_experts("qwen2_moe");
  run.model.num_hidden_layers = layers;
  run.sequences = 48;
  run.microbatches = 16;
  run.steps = 3;
  return run;
}

class ExpertsInASchedule : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Of, ExpertsInASchedule,
                         ::testing::Values("gpipe", "1f1b", "zb1p", "zb2p", "dfs", "loopedbfs",
                                           "interleaved1f1b", "interleavedzerobubble", "zbvzerobubble",
                                           "dualpipev", "vhalf", "vmin", "auto"),
                         [](const auto& info) { return "S" + std::string(info.param); });

TEST_P(ExpertsInASchedule, EqualOneRank) {
  struct Case {
    Ranks ranks;
    int ep, layers;
  };
  for (const Case& one : {Case{{2, 1, 2}, 2, 5}, Case{{1, 1, 4}, 1, 9}}) {
    SCOPED_TRACE(std::to_string(one.ranks.pp) + " stages, ep " + std::to_string(one.ep));
    const Outcome want = train(experts_of(one.layers));
    Training run = staged(over_ep(experts_of(one.layers), one.ranks, one.ep), GetParam());
    run.pipeline.overlap = true;
    for (const auto mode : {ActivationCheckpointing::none, ActivationCheckpointing::full}) {
      run.checkpointing = mode;
      expect_close(train(run), want);
    }
  }
}

}  // namespace
}  // namespace heddle::tests
