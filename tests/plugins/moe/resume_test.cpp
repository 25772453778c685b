// Checkpoints of experts move between any ep, ep_shard and strategy, and what a block changes in a strategy
// trains to the same numbers.
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

// Experts of six columns, so that two ranks can share them.
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

TEST(ResumeExperts, GoOnWithTheNumbersOfOneRank) {
  expect_resumes_among(Mixtures(), expert_topologies(), expert_topologies());
}

struct EvenMixtures : Mixtures {
  EvenMixtures() {
    const std::string odd = "moe_intermediate_size: 5";
    model.replace(model.find(odd), odd.size(), "moe_intermediate_size: 6");
  }
};

TEST(ResumeExperts, GoOnBesideExpertTensorParallelism) {
  expect_resumes_among(EvenMixtures(), topologies_with_parts(), topologies_with_parts());
}

// Steps that change nothing write what was read.
TEST(ResumeExperts, MovesTheBitsOfParts) {
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

TEST(ResumeExperts, GivesTheBitsOfARunThatNeverStopped) {
  for (const size_t which : {size_t{1}, size_t{3}}) expect_resumes(Mixtures(), expert_topologies()[which]);
}

std::string refusal_of(const WholeRuns& runs, const std::string& distributed, int ranks) {
  return runs.refusal({"refused", ranks, distributed});
}

TEST(RefusedExperts, NameTheNumbers) {
  Mixtures runs;
  EXPECT_NE(refusal_of(runs, "{strategy: fsdp2, ep_size: 3}", 3)
                .find("distributed.ep_size: the number of experts (8 in "
                      "'model.layers.0.mlp.experts') must "
                      "be divisible by ep_size (3)\n  hint: choose an ep_size that divides 8"),
            std::string::npos);
  EXPECT_NE(refusal_of(runs, "{strategy: ddp, ep_size: 4}", 2)
                .find("non_pp_size=2 must be a multiple of ep_size=4"),
            std::string::npos);
  EXPECT_NE(refusal_of(runs, "{strategy: ddp, ep_size: 2, moe: {mp_policy: {param_dtype: bfloat16}}}", 2)
                .find("the strategy has no field mp_policy that the block could change"),
            std::string::npos);
  EXPECT_EQ(refusal_of(runs, "{strategy: fsdp2, etp_size: 2}", 2),
            "error[mesh] run.yaml:7 distributed.etp_size: the width of an expert (5 in "
            "'model.layers.0.mlp.experts') must be "
            "divisible by etp_size (2)\n  hint: choose an etp_size that divides 5");
  EXPECT_NE(refusal_of(runs, "{strategy: ddp, ep_size: 2, etp_size: 4}", 4)
                .find("non_pp_size=4 must be a multiple of ep_size=2 * etp_size=4"),
            std::string::npos);
  const EvenMixtures even;
  EXPECT_NE(refusal_of(even, "{strategy: ddp, etp_size: 2, moe: {mp_policy: {param_dtype: bfloat16}}}", 2)
                .find("the strategy has no field mp_policy that the block could change"),
            std::string::npos);
  runs.model.replace(runs.model.find("num_experts_per_tok: 2"), 22, "num_experts_per_tok: 9");
  EXPECT_NE(refusal_of(runs, "{strategy: fsdp2, ep_size: 2}", 2).find("9"), std::string::npos);
  Mixtures tied;
  tied.model.insert(1, "tie_word_embeddings: true, ");
  EXPECT_NE(refusal_of(tied, "{strategy: fsdp2, ep_size: 2, moe: {wrap_outer_model: false}}", 2)
                .find("no unit holds both"),
            std::string::npos);
  EXPECT_NE(refusal_of(tied, "{strategy: fsdp2, ep_size: 2, moe: {lm_head_precision: float32}}", 2)
                .find("the head is tied to the embedding"),
            std::string::npos);
}

TEST(RefusedExperts, NamesALossOverLayersThatAreNotOnOneRank) {
  Mixtures runs;
  runs.model.insert(1, "output_router_logits: true, ");
  const std::string piped =
      "pp_size: 2, " + kFp32Policy + ", pipeline: {pp_schedule: 1f1b, pp_microbatch_size: 3}";
  EXPECT_EQ(
      refusal_of(runs, "{strategy: fsdp2, " + piped + "}", 2),
      "error[config] run.yaml:7 distributed.pp_size: the auxiliary loss over all layers needs all layers on "
      "one rank: use router_aux_loss_type: layer, or pp_size: 1\n"
      "  hint: 'model.layers.0.mlp.gate' (router) of the model refuses it: set pp_size: 1");
}

TEST(RefusedExperts, NamesADenseModel) {
  const WholeRuns runs;
  for (const std::string key : {"ep_size", "etp_size"})
    EXPECT_EQ(refusal_of(runs, "{strategy: fsdp2, " + key + ": 2}", 2),
              "error[config] run.yaml:7 distributed." + key + ": " + key +
                  " is 2, and the model has no experts\n  hint: set " + key +
                  ": 1, or train a model with experts");
}

}  // namespace
}  // namespace heddle::tests
