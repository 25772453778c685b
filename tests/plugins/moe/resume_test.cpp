// Checkpoints of experts resume on any ep, ep_shard and strategy, and settings that the section moe overrides
// give equal results.
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "plugins/whole_runs.h"
#include "tests/main/with_all.h"

namespace heddle::tests {
namespace {

HEDDLE_WITH_ALL("ResumeExperts.*");

const std::vector<Topology>& expert_topologies() {
  static const std::vector<Topology> all{
      {"single", 1, "{strategy: single}"},
      {"ep2", 2, "{strategy: fsdp2, ep_size: 2, " + kFp32Policy + "}"},
      {"ep4", 4, "{strategy: fsdp2, ep_size: 4, moe: {reshard_after_forward: true}, " + kFp32Policy + "}"},
      {"ep2_shard2", 4, "{strategy: fsdp2, ep_size: 2, moe: {" + kFp32Policy + "}}"},
      {"ep2_tp2", 2, "{strategy: fsdp2, ep_size: 2, tp_size: 2, " + kFp32Policy + "}"},
      {"ddp_ep2", 2, "{strategy: ddp, ep_size: 2}"},
      {"zero3_ep2", 4, "{strategy: megatron_fsdp, ep_size: 2}"},
      {"pp2_ep2", 4,
       "{strategy: fsdp2, ep_size: 2, pp_size: 2, " + kFp32Policy +
           ", pipeline: {pp_schedule: zb1p, pp_microbatch_size: 1}}"}};
  return all;
}

constexpr int kMoeSteps = 8, kStop = 4;
const std::string kMoeStoppedAt = "/epoch_0_step_3", kEnd = "/epoch_1_step_7";

// Experts of width six, so that two ranks can split them.
const std::vector<Topology>& topologies_with_parts() {
  static const std::vector<Topology> all{
      {"single", 1, "{strategy: single}"},
      {"etp2", 2, "{strategy: ddp, etp_size: 2}"},
      {"ep2_etp2", 4,
       "{strategy: fsdp2, ep_size: 2, etp_size: 2, moe: {dispatcher: alltoall}, " + kFp32Policy + "}"},
      {"tp2_etp2", 4, "{strategy: fsdp2, tp_size: 2, etp_size: 2, " + kFp32Policy + "}"},
      {"zero3_etp2", 2, "{strategy: megatron_fsdp, etp_size: 2}"},
      {"pp2_etp2", 4,
       "{strategy: fsdp2, etp_size: 2, pp_size: 2, " + kFp32Policy +
           ", pipeline: {pp_schedule: zb1p, pp_microbatch_size: 1}}"}};
  return all;
}

struct Mixtures : WholeRuns {
  Mixtures() {
    model =
        "{model_type: qwen3_moe, vocab_size: 53, hidden_size: 14, intermediate_size: 23, "
        "num_hidden_layers: 3, num_attention_heads: 4, num_key_value_heads: 4, head_dim: 6, "
        "max_position_embeddings: 16, num_experts: 8, num_experts_per_tok: 2, moe_intermediate_size: 5, "
        "norm_topk_prob: true}";
  }
};

TEST(ResumeExperts, EqualOneRank) {
  expect_resumes_among(Mixtures(), expert_topologies(), expert_topologies());
}

struct EvenMixtures : Mixtures {
  EvenMixtures() {
    const std::string odd = "moe_intermediate_size: 5";
    model.replace(model.find(odd), odd.size(), "moe_intermediate_size: 6");
  }
};

TEST(ResumeExperts, EqualOneRankWithExpertTensorParallelism) {
  expect_resumes_among(EvenMixtures(), topologies_with_parts(), topologies_with_parts());
}

// A step that changes nothing writes the bits that were read.
TEST(ResumeExperts, KeepTheBitsOfParts) {
  EvenMixtures runs;
  runs.train(topologies_with_parts()[0], "from", kStop);
  runs.lr = "0.0";
  const auto want = tensors_of(runs / ("from" + kMoeStoppedAt) / "model");
  for (const Topology& to : topologies_with_parts()) {
    runs.train(to, to.name, kMoeSteps, "from" + kMoeStoppedAt);
    const auto got = tensors_of(runs / (to.name + kEnd) / "model");
    ASSERT_EQ(got.size(), want.size());
    for (const auto& [name, tensor] : want) EXPECT_TRUE(at::equal(got.at(name), tensor)) << to.name << name;
  }
}

TEST(ResumeExperts, EqualTheBitsOfARunThatNeverStopped) {
  for (const size_t which : {size_t{1}, size_t{3}}) expect_resumes(Mixtures(), expert_topologies()[which]);
}

}  // namespace
}  // namespace heddle::tests
