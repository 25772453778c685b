// Checkpoints equal those of `single` if tp_size does not divide a width: copies of whole parameters are
// split at the same places on all ranks of tp.
#include <ATen/ops/allclose.h>
#include <gtest/gtest.h>

#include "plugins/whole_runs.h"
#include "tests/main/with_all.h"

namespace heddle::tests {
namespace {

HEDDLE_WITH_ALL("MegatronFsdp.SavesTheSameAsSingle*");

constexpr int kUnevenSteps = 2;
const std::string kUnevenSaved = "/epoch_0_step_1";

std::string llama_of_width(int width, int heads, int key_heads, int hidden = 20) {
  return "{model_type: llama, vocab_size: 53, hidden_size: " + std::to_string(hidden) +
         ", intermediate_size: " + std::to_string(width) +
         ", num_hidden_layers: 2, num_attention_heads: " + std::to_string(heads) +
         ", num_key_value_heads: " + std::to_string(key_heads) +
         ", head_dim: 8, max_position_embeddings: 16}";
}

void expect_saves_what_single_saves(WholeRuns& runs, const std::vector<Topology>& topologies,
                                    const std::string& name) {
  const std::string alone = "single_" + name;
  runs.train({"single", 1, "{strategy: single}"}, alone, kUnevenSteps);
  for (const Topology& topology : topologies) {
    SCOPED_TRACE(topology.name + ", " + name);
    const std::string run = topology.name + "_" + name;
    std::vector<std::string> refusals;
    runs.train(topology, run, kUnevenSteps, "", &refusals);
    ASSERT_TRUE(refusals.empty()) << refusals.front();
    for (const char* part : {"/model", "/optim"}) {
      const auto want = tensors_of(runs / (alone + kUnevenSaved + part));
      const auto got = tensors_of(runs / (run + kUnevenSaved + part));
      ASSERT_EQ(got.size(), want.size());
      for (const auto& [parameter, tensor] : want)
        EXPECT_TRUE(at::allclose(got.at(parameter), tensor, 1e-3, 2e-5)) << parameter;
    }
  }
}

TEST(MegatronFsdp, SavesTheSameAsSingleWithUnevenWidths) {
  const std::vector<Topology> topologies{
      {"zero3", 4, "{strategy: megatron_fsdp, tp_size: 2}"},
      {"zero1", 4, "{strategy: megatron_fsdp, tp_size: 2, zero_dp_strategy: 1}"},
      {"flat", 4,
       "{strategy: megatron, tp_size: 2, use_distributed_optimizer: true, overlap_grad_reduce: true, "
       "bucket_size: 700}"},
      {"by_unit", 4,
       "{strategy: megatron, tp_size: 2, use_megatron_fsdp: true, "
       "data_parallel_sharding_strategy: optim_grads_params}"}};
  WholeRuns runs;
  for (int width = 25; width <= 32; ++width)
    for (const int key_heads : {4, 2}) {
      runs.model = llama_of_width(width, 4, key_heads);
      expect_saves_what_single_saves(runs, topologies,
                                     std::to_string(width) + "_" + std::to_string(key_heads) + "_key_heads");
    }
}

TEST(MegatronFsdp, SavesTheSameAsSingleOnThreeRanksOfTp) {
  WholeRuns runs;
  runs.model = llama_of_width(25, 3, 3, 21);
  expect_saves_what_single_saves(
      runs,
      {{"tp3", 6, "{strategy: megatron_fsdp, tp_size: 3}"},
       {"tp3_flat", 6, "{strategy: megatron, tp_size: 3, use_distributed_optimizer: true}"}},
      "25");
}

TEST(MegatronFsdp, SavesMixturesWhoseWidthsTpDoesNotDivide) {
  WholeRuns runs;
  runs.model =
      "{model_type: qwen3_moe, vocab_size: 53, hidden_size: 14, intermediate_size: 23, num_hidden_layers: 2, "
      "num_attention_heads: 4, num_key_value_heads: 4, head_dim: 6, max_position_embeddings: 16, "
      "num_experts: 6, num_experts_per_tok: 2, moe_intermediate_size: 5, norm_topk_prob: true}";
  expect_saves_what_single_saves(runs, {{"ep2_tp2", 4, "{strategy: megatron_fsdp, tp_size: 2, ep_size: 2}"}},
                                 "mixture");
}

}  // namespace
}  // namespace heddle::tests
