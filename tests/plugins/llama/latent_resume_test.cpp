// A correction bias is saved, and resumes from any topology on any other.
#include <gtest/gtest.h>

#include "plugins/whole_runs.h"
#include "tests/main/with_all.h"

namespace heddle::tests {
namespace {

HEDDLE_WITH_ALL("LatentResume.*");

const std::string kSavedBias = "model.layers.1.mlp.gate.e_score_correction_bias";

struct LatentRuns : WholeRuns {
  LatentRuns() {
    model =
        "{model_type: deepseek_v3, vocab_size: 53, hidden_size: 14, intermediate_size: 23, "
        "num_hidden_layers: 2, num_attention_heads: 2, num_key_value_heads: 2, q_lora_rank: 9, "
        "kv_lora_rank: 7, qk_nope_head_dim: 5, qk_rope_head_dim: 4, v_head_dim: 6, "
        "max_position_embeddings: 16, n_routed_experts: 8, num_experts_per_tok: 2, moe_intermediate_size: 5, "
        "n_group: 4, topk_group: 2, first_k_dense_replace: 1, gate_bias_update_factor: 0.01}";
  }
};

TEST(LatentResume, EqualsOneRank) {
  const std::vector<Topology> all = {{"single", 1, "{strategy: single}"},
                                     {"ep2", 2, "{strategy: fsdp2, ep_size: 2, " + kFp32Policy + "}"},
                                     {"zero1", 2, "{strategy: megatron_fsdp, zero_dp_strategy: 1}"},
                                     {"pp2", 2,
                                      "{strategy: fsdp2, pp_size: 2, " + kFp32Policy +
                                          ", pipeline: {pp_schedule: 1f1b, pp_microbatch_size: 1}}"}};
  const LatentRuns runs;
  expect_resumes_among(runs, all, all);
  for (const std::string run : {"undisturbed/epoch_1_step_7", "from_ep2/epoch_0_step_3"})
    EXPECT_GT(tensors_of(runs / (run + "/model")).at(kSavedBias).abs().max().item<double>(), 0.005) << run;
}

}  // namespace
}  // namespace heddle::tests
