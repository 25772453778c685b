// GPT-OSS, GLM-4.5, MiniMax-M2, Ling and DeepSeek-V3 train to the numbers of one rank under every strategy,
// expert and tensor parallelism, and in pipelines.
#include <gtest/gtest.h>

#include "plugins/moe/model_runs.h"
#include "plugins/moe/runs.h"

namespace heddle::tests {
namespace {

class MoeModel : public ::testing::TestWithParam<std::string> {
 protected:
  Training run() const { return small_model(GetParam()); }
  const Outcome& alone() const {
    static std::map<std::string, Outcome> known;
    const auto found = known.find(GetParam());
    return found != known.end() ? found->second : known.emplace(GetParam(), train(run())).first->second;
  }
};

TEST_P(MoeModel, Learns) {
  EXPECT_LT(alone().losses.back(), 0.95 * alone().losses.front());
}

TEST_P(MoeModel, EqualsOneRankUnderEveryStrategy) {
  for (const std::string strategy : {"fsdp2", "ddp", "megatron_fsdp", "megatron"}) {
    SCOPED_TRACE(strategy);
    expect_close(train(over_ep(run(), {2}, 1, "{}", strategy)), alone());
    expect_close(train(over_ep(run(), {4}, 2, "{}", strategy)), alone());
  }
  expect_close(train(over_ep(run(), {4, 1, 1, 2}, 2)), alone());
  Training again = over_ep(run(), {2}, 1);
  again.checkpointing = ActivationCheckpointing::selective;
  expect_close(train(again), alone());
}

TEST_P(MoeModel, EqualsOneRankUnderExpertParallelism) {
  for (const std::string dispatcher : {"allgather", "alltoall"})
    for (const auto& [ranks, ep] : {std::pair{2, 2}, {4, 2}, {4, 4}}) {
      SCOPED_TRACE(dispatcher + " " + std::to_string(ranks) + " " + std::to_string(ep));
      expect_close(train(over_ep(run(), {ranks}, ep, way(dispatcher))), alone());
    }
}

// Room for all choices, so that nothing is dropped and the rest is empty rows: these get no bias.
TEST_P(MoeModel, EqualsOneRankWithEmptyRows) {
  const std::string block = "{dispatcher: alltoall, capacity_factor: 8.0, pad_to_capacity: true}";
  expect_close(without_drops(train(over_ep(run(), {2}, 2, block))), alone());
}

// Norms of single heads make more of the rounding of a sum over tp than experts do: they stay out.
TEST_P(MoeModel, EqualsOneRankBesideTensorParallelism) {
  Training one = run();
  one.model.qk_norm = one.model.qk_norm_of_whole;
  const Outcome want = train(one);
  expect_close(train(over_tp(one, 2)), want);
  expect_close(train(over_ep(one, {2, 2}, 2)), want);
  expect_close(train(over_ep(one, {1, 2}, 2, way("alltoall"), "ddp")), want);
}

TEST_P(MoeModel, EqualsOneRankInPipelines) {
  for (const std::string schedule : {"1f1b", "zb1p"})
    for (const auto mode : {ActivationCheckpointing::none, ActivationCheckpointing::full}) {
      SCOPED_TRACE(schedule);
      Training piped = staged(over_ep(run(), {2, 1, 2}, 2), schedule);
      piped.checkpointing = mode;
      expect_close(train(piped), alone());
    }
}

TEST_P(MoeModel, EqualsOneRankBesideContextParallelism) {
  Training one = run();
  one.change_batch = four_tokens;
  const Outcome want = train(one);
  for (const auto& [method, cp] :
       {std::pair{"allgather", 2}, {"ring", 2}, {"ulysses", 2}, {"ring_ulysses", 4}}) {
    SCOPED_TRACE(method);
    Training split = over_ep(one, {cp}, 2);
    split.axes = {{"pp", 1}, {"dp_replicate", 1}, {"dp_shard", 1}, {"cp", cp}, {"tp", 1}};
    split.microbatches = 4;
    split.parallelizers.emplace_back("context", "context: {method: " + std::string(method) + "}");
    expect_close(train(split), want);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, MoeModel,
                         ::testing::Values("gpt_oss", "glm4_moe", "minimax_m2", "bailing_moe", "deepseek_v3"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace heddle::tests
