// Expert tensor parallelism trains to the numbers of one rank: alone, beside expert and tensor parallelism,
// under every strategy and in pipelines.
#include <gtest/gtest.h>

#include "plugins/moe/model_runs.h"
#include "plugins/moe/runs.h"

namespace heddle::tests {
namespace {

const std::vector<std::string> kDispatchers = {"allgather", "alltoall"};

// Six columns an expert, so that two ranks can share them.
Training even_width(Training run) {
  run.model.mixture.width = 6;
  return run;
}

const Outcome& whole_experts(const std::string& model_type) {
  static std::map<std::string, Outcome> known;
  const auto found = known.find(model_type);
  return found != known.end()
             ? found->second
             : known.emplace(model_type, train(even_width(eight_experts(model_type)))).first->second;
}

TEST(ExpertTensorParallel, EqualsOneRankUnderEveryStrategy) {
  for (const std::string strategy : {"fsdp2", "ddp", "megatron_fsdp", "megatron"})
    for (const auto& [ranks, ep, etp] : {std::tuple{2, 1, 2}, {4, 1, 2}, {4, 2, 2}})
      for (const std::string& dispatcher : kDispatchers) {
        if (ep == 1 && dispatcher == "alltoall") continue;  // there is nothing to choose
        SCOPED_TRACE(strategy + " " + dispatcher + " " + std::to_string(ranks) + std::to_string(ep) +
                     std::to_string(etp));
        expect_close(
            train(over_etp(even_width(eight_experts()), {ranks}, ep, etp, way(dispatcher), strategy)),
            whole_experts("qwen3_moe"));
      }
}

TEST(ExpertTensorParallel, EqualsOneRankBesideTensorParallelism) {
  Training one = eight_experts("mixtral");
  one.model.mixture.width = 8;
  const Outcome want = train(one);
  for (const std::string strategy : {"fsdp2", "ddp"})
    for (const auto& [dp, ep, etp] : {std::tuple{1, 1, 2}, {2, 1, 2}, {2, 2, 2}, {2, 1, 4}}) {
      SCOPED_TRACE(strategy + " " + std::to_string(dp) + std::to_string(ep) + std::to_string(etp));
      for (const std::string& dispatcher : kDispatchers)
        expect_close(train(over_etp(one, {dp, 2}, ep, etp, way(dispatcher), strategy)), want);
    }
}

// Columns of gate and up in turn, biases of both products, empty rows.
TEST(ExpertTensorParallel, EqualsOneRankWithBiases) {
  const Training one = even_width(gpt_oss());
  const Outcome want = train(one);
  for (const std::string strategy : {"fsdp2", "ddp", "megatron_fsdp"})
    for (const auto& [ranks, ep] : {std::pair{2, 1}, {4, 1}, {4, 2}}) {
      SCOPED_TRACE(strategy + " " + std::to_string(ranks) + std::to_string(ep));
      expect_close(train(over_etp(one, {ranks}, ep, 2, "{}", strategy)), want);
    }
  expect_close(without_drops(train(over_etp(
                   one, {4}, 2, 2, "{dispatcher: alltoall, capacity_factor: 8.0, pad_to_capacity: true}"))),
               want);
}

TEST(ExpertTensorParallel, EqualsOneRankInPipelinesAndWithActivationCheckpointing) {
  for (const std::string strategy : {"fsdp2", "ddp"})
    for (const std::string schedule : {"1f1b", "zb1p"})
      for (const auto kind :
           {ActivationCheckpointing::none, ActivationCheckpointing::full, ActivationCheckpointing::selective})
        for (const int ep : {1, 2}) {
          SCOPED_TRACE(strategy + " " + schedule + " " + std::to_string(ep));
          Training run = staged(over_etp(even_width(eight_experts("qwen2_moe")), {2 * ep, 1, 2}, ep, 2,
                                         way("alltoall"), strategy),
                                schedule);
          run.checkpointing = kind;
          expect_close(train(run), whole_experts("qwen2_moe"));
        }
}

TEST(ExpertTensorParallel, GivesTheSameBitsTwice) {
  for (const std::string& dispatcher : kDispatchers) {
    const Training run = over_etp(even_width(eight_experts()), {4}, 2, 2, way(dispatcher));
    expect_bit_equal(train(run), train(run));
  }
}

}  // namespace
}  // namespace heddle::tests
