// Latent attention, and routers whose correction bias moves. Strategies and topologies: moe/models_test.cpp.
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include "plugins/toy_training.h"

namespace heddle::tests {
namespace {

const std::string kBias = "model.layers.2.mlp.gate.e_score_correction_bias";

TEST(Latent, LearnsAndMovesItsCorrectionBiasByTheLoads) {
  const Outcome outcome = train(deepseek());
  EXPECT_LT(outcome.losses.back(), 0.9 * outcome.losses.front());
  const std::vector<double>& loads = outcome.sides.at("moe/load_2");
  std::vector<double> bias(8, 0.0);
  for (size_t step = 0; step < 12; ++step) {
    double mean = 0;
    for (size_t e = 0; e < 8; ++e) mean += loads[step * 8 + e] / 8;
    EXPECT_EQ(mean, 84 * 3 / 8.0);
    for (size_t e = 0; e < 8; ++e) bias[e] += loads[step * 8 + e] < mean ? 0.03 : -0.03;
  }
  const at::Tensor& got = outcome.parameters.at(kBias);
  for (int64_t e = 0; e < 8; ++e) EXPECT_NEAR(got[e].item<double>(), bias[e], 1e-6) << e;
}

TEST(Latent, KeepsItsCorrectionBiasWithoutARate) {
  Training still = deepseek();
  still.model.mixture.correction_rate = 0;
  still.steps = 3;
  EXPECT_EQ(train(still).parameters.at(kBias).abs().sum().item<double>(), 0);
}

TEST(Latent, StaysWholeUnderTensorParallelism) {
  std::string plan = "tp_plan: {model.layers.*.self_attn.o_proj: rowwise";
  for (const char* name : {"q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj"})
    plan += ", model.layers.*.self_attn." + std::string(name) + ": colwise";
  const std::string error = error_of([&] { train(on(deepseek(), "single tp2(" + plan + "})")); });
  EXPECT_NE(error.find("goes over numbers that the plan splits among ranks"), std::string::npos) << error;
  EXPECT_NE(error.find("leave 'model.layers.0.self_attn' whole"), std::string::npos) << error;
}

TEST(Latent, OverChosenKeysEqualsOneRank) {
  expect_equal_on(sparse_deepseek(),
                  {"[fsdp2|ddp|megatron_fsdp|megatron] dp2", "fsdp2 dp2 selective", "single tp2",
                   "fsdp2 dp2 ep2 pp2([1f1b|zb1p])[| full]", "single pp3(gpipe)"});
}

TEST(Latent, OverChosenKeysRefusesContextParallelism) {
  const std::string error = error_of([] {
    Units units = make_units(sparse_deepseek().model, at::TensorOptions().device(at::kMeta));
    Sizes sizes;
    sizes.world = sizes.cp = 2;
    make_parallelizer("context", "context: {method: ring}")->check(units, sizes);
  });
  EXPECT_NE(error.find("'model.layers.0.self_attn.indexer' (lightning_indexer) computes a token from other "
                       "tokens and has no rule for the axis cp"),
            std::string::npos)
      << error;
}

}  // namespace
}  // namespace heddle::tests
