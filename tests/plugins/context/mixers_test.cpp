// Mixers with a state of each head under context parallelism: equal to one rank with every method, beside
// every other axis, and in packed documents.
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "heddle/config/node.h"
#include "plugins/toy_training.h"
#include "plugins/training_data.h"

namespace heddle::tests {
namespace {

const std::string kEachMethod = "([allgather|ring|ulysses|ring_ulysses])";

// Layers that begin with a mixer; a layer of attention is between.
struct MixingModel {
  const char* name;
  std::string keys;
};
std::ostream& operator<<(std::ostream& out, const MixingModel& model) {
  return out << model.name;
}

const std::string kAttention = "num_attention_heads: 4, num_key_value_heads: 4, initializer_range: 0.15, ";

// Groups: 2 of 3 heads, 4 of one head, 1 of 6 heads, 2 of 3 heads whose norm goes over a group, 5 heads.
const MixingModel kMixing[] = {
    {"delta_net",
     "model_type: qwen3_5_text, " + kAttention +
         "head_dim: 8, intermediate_size: 23, layer_types: [linear_attention, full_attention, "
         "linear_attention], linear_conv_kernel_dim: 3, linear_num_key_heads: 2, linear_num_value_heads: 6, "
         "linear_key_head_dim: 21, linear_value_head_dim: 3, num_hidden_layers: 3"},
    {"delta_net_of_single_heads",
     "model_type: qwen3_5_text, " + kAttention +
         "head_dim: 8, intermediate_size: 23, layer_types: [linear_attention, full_attention], "
         "linear_conv_kernel_dim: 2, linear_num_key_heads: 4, linear_num_value_heads: 4, "
         "linear_key_head_dim: 22, linear_value_head_dim: 5, num_hidden_layers: 2"},
    {"falcon_h1",
     "model_type: falcon_h1, " + kAttention +
         "head_dim: 6, intermediate_size: 23, num_hidden_layers: 2, mamba_n_groups: 1, mamba_n_heads: 6, "
         "mamba_d_head: 5, mamba_d_ssm: 30, mamba_d_state: 7, mamba_d_conv: 3, mamba_rms_norm: false, "
         "time_step_limit: [0.0, .inf]"},
    {"nemotron_h",
     "model_type: nemotron_h, " + kAttention +
         "head_dim: 6, intermediate_size: 23, hybrid_override_pattern: 'M*-M', mamba_num_heads: 6, n_groups: "
         "2, mamba_head_dim: 5, ssm_state_size: 7, conv_kernel: 4, time_step_limit: [0.001, .inf]"},
    {"kimi_linear",
     "model_type: kimi_linear, num_attention_heads: 4, num_key_value_heads: 4, initializer_range: 0.15, "
     "intermediate_size: 23, layer_types: [linear_attention, full_attention, linear_attention], "
     "num_hidden_layers: 3, kv_lora_rank: 9, qk_nope_head_dim: 7, qk_rope_head_dim: 4, v_head_dim: 6, "
     "linear_head_dim: 11, linear_num_heads: 5, linear_conv_kernel_dim: 3, num_experts: 4, "
     "num_experts_per_token: 2, num_shared_experts: 1, moe_intermediate_size: 5, mlp_layer_types: [dense, "
     "sparse, dense]"}};

Training mixing(const MixingModel& model) {
  Training run = four_heads();
  run.steps = 4;
  // Elements whose gradients are rounding alone move little: normalised keys follow them far else.
  run.make_optimizer = [] {
    AdamWConfig config;
    config.eps = 1e-3;
    return train::make_adamw(config);
  };
  const auto spec = engine::read_model(
      config::read_text("{vocab_size: 53, hidden_size: 28, " + model.keys + "}", "run.yaml"), built_plugins(),
      UnknownKeys::refused);
  run.make_units = [spec](int) { return spec->make_units(at::TensorOptions(at::kMeta).dtype(at::kFloat)); };
  return run;
}

class ContextMixers : public ::testing::TestWithParam<MixingModel> {};

// The averages of the first step are the gradients, clipped.
TEST_P(ContextMixers, HaveTheGradientsOfOneRank) {
  const auto compare = [](const Outcome& got, const Outcome& want) {
    ASSERT_EQ(got.averages.size(), want.averages.size());
    for (const auto& [name, gradient] : want.averages) {
      const double scale = gradient.abs().max().item<double>();
      EXPECT_LE((got.averages.at(name) - gradient).abs().max().item<double>(), 2e-5 * scale + 1e-7) << name;
    }
  };
  for (const bool packed : {false, true}) {
    Training one = mixing(GetParam());
    one.steps = 1;
    if (packed) one.change_batch = pack;
    expect_equal_on(one, {"fsdp2 dp2", "fsdp2 cp[2|3](allgather)", "fsdp2 cp4(ring_ulysses)"}, compare);
  }
}

TEST_P(ContextMixers, EqualOneRankByEveryMethod) {
  expect_equal_on(mixing(GetParam()),
                  {"fsdp2 dp2", "fsdp2 cp2" + kEachMethod, "fsdp2 cp[3|4]([allgather|ring])"});
}

TEST_P(ContextMixers, EqualOneRankBesideOtherAxes) {
  expect_equal_on(mixing(GetParam()),
                  {"[megatron|megatron_fsdp] dp2 cp2(allgather)", "fsdp2 dp4 replicas2 cp2(ring)",
                   "fsdp2 cp2[(allgather)|(ulysses)] tp2()", "fsdp2 cp3(ring) [full|selective]"});
}

TEST_P(ContextMixers, EqualOneRankInAPipeline) {
  expect_equal_on(mixing(GetParam()), {"fsdp2 cp2(allgather) pp2([1f1b|zb2p]) calls2"});
}

TEST_P(ContextMixers, EqualOneRankInPackedDocuments) {
  Training run = mixing(GetParam());
  run.change_batch = pack;
  expect_equal_on(run,
                  {"fsdp2 dp2", "fsdp2 cp2" + kEachMethod, "fsdp2 cp3(ring)", "fsdp2 cp2(allgather) full"});
}

INSTANTIATE_TEST_SUITE_P(Models, ContextMixers, ::testing::ValuesIn(kMixing),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace heddle::tests
