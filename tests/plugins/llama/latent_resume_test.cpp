// A correction bias is saved and resumes from any topology to any other.
#include <ATen/ops/allclose.h>
#include <gtest/gtest.h>

#include "plugins/whole_runs.h"

namespace heddle::tests {
namespace {

const std::string kSingles = "mp_policy: {param_dtype: float32, reduce_dtype: float32}";
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

TEST(LatentResume, GoesOnWithTheNumbersOfOneRank) {
  const std::vector<Topology> all = {{"single", 1, "{strategy: single}"},
                                     {"ep2", 2, "{strategy: fsdp2, ep_size: 2, " + kSingles + "}"},
                                     {"zero1", 2, "{strategy: megatron_fsdp, zero_dp_strategy: 1}"},
                                     {"pp2", 2,
                                      "{strategy: fsdp2, pp_size: 2, " + kSingles +
                                          ", pipeline: {pp_schedule: 1f1b, pp_microbatch_size: 1}}"}};
  const LatentRuns runs;
  const Told want = runs.train(all[0], "run", 8);
  const auto parameters = tensors_of(runs / "run/epoch_1_step_7/model");
  EXPECT_GT(parameters.at(kSavedBias).abs().max().item<double>(), 0.005);
  for (const Topology& from : all) {
    runs.train(from, "from_" + from.name, 4);
    const auto half = tensors_of(runs / ("from_" + from.name + "/epoch_0_step_3/model"));
    EXPECT_GT(half.at(kSavedBias).abs().max().item<double>(), 0.005);
    for (const Topology& to : all) {
      SCOPED_TRACE("from " + from.name + " to " + to.name);
      const std::string name = from.name + "_" + to.name;
      const Told got = runs.train(to, name, 8, "from_" + from.name + "/epoch_0_step_3");
      ASSERT_EQ(got.steps, (std::vector<int64_t>{4, 5, 6, 7}));
      for (size_t i = 0; i < got.steps.size(); ++i)
        EXPECT_NEAR(got.losses[i] / want.losses[4 + i], 1, 2e-5) << "loss of step " << got.steps[i];
      const auto end = tensors_of(runs / (name + "/epoch_1_step_7/model"));
      EXPECT_TRUE(at::allclose(end.at(kSavedBias), parameters.at(kSavedBias), 0, 1e-6));
    }
  }
}

}  // namespace
}  // namespace heddle::tests
