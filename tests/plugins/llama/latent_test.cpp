// Latent attention, and routers with an updated correction bias. Strategies and topologies:
// moe/models_test.cpp.
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include "plugins/toy_training.h"
#include "plugins/training_data.h"
#include "tests/main/with_all.h"

namespace heddle::tests {
namespace {

HEDDLE_WITH_ALL("SparseLatent.*UnderContextParallelism:SparseLatent.*Packed*");

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

TEST(Latent, KeepsItsCorrectionBiasAtRateZero) {
  Training still = deepseek();
  still.model.mixture.router.correction_rate = 0;
  still.steps = 3;
  EXPECT_EQ(train(still).parameters.at(kBias).abs().sum().item<double>(), 0);
}

TEST(Latent, IsNotSplitByTensorParallelism) {
  std::string plan = "tp_plan: {model.layers.*.self_attn.o_proj: rowwise";
  for (const char* name : {"q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj"})
    plan += ", model.layers.*.self_attn." + std::string(name) + ": colwise";
  const std::string error = error_of([&] { train(on(deepseek(), "single tp2(" + plan + "})")); });
  EXPECT_NE(error.find("normalizes over elements that the plan splits among ranks"), std::string::npos)
      << error;
  EXPECT_NE(error.find("leave 'model.layers.0.self_attn' whole"), std::string::npos) << error;
}

TEST(SparseLatent, EqualsOneRank) {
  expect_equal_on(sparse_deepseek(),
                  {"[fsdp2|ddp|megatron_fsdp|megatron] dp2", "fsdp2 dp2 selective", "single tp2",
                   "fsdp2 dp2 ep2 pp2([1f1b|zb1p])[| full]", "single pp3(gpipe)"});
}

// Heads are split, also if cp_size does not divide them.
TEST(SparseLatent, EqualsOneRankUnderContextParallelism) {
  expect_equal_on(sparse_deepseek(),
                  {"fsdp2 cp2([allgather|ring|ulysses|ring_ulysses])", "fsdp2 cp3([allgather|ring])",
                   "fsdp2 cp4(ring_ulysses)", "[megatron|megatron_fsdp] dp2 cp2(allgather)",
                   "fsdp2 cp2(allgather) [tp2|full|selective]", "fsdp2 cp2(ring) pp2([1f1b|zb1p]) calls2"});
}

TEST(SparseLatent, EqualsOneRankInPackedDocuments) {
  Training packed = sparse_deepseek();
  packed.change_batch = pack;
  expect_equal_on(packed, {"fsdp2 cp[2|3](allgather)", "fsdp2 cp2([ulysses|ring_ulysses])"});
}

TEST(SparseLatent, RefusesMoreRanksThanHeads) {
  const auto said = [](const std::string& method, int cp) {
    return error_of([&] {
      Units units = make_units(sparse_deepseek().model, at::TensorOptions().device(at::kMeta));
      Sizes sizes;
      sizes.world = sizes.cp = cp;
      make_parallelizer("context", "context: {method: " + method + "}")->check(units, sizes);
    });
  };
  EXPECT_EQ(said("ring", 8), "no error");
  EXPECT_EQ(said("ring", 9),
            "error[config] distributed.cp_size: the ranks of cp split the heads of mixers and of attention "
            "over selected keys: a rank of tp has 8, cp_size is 9\n"
            "  hint: choose a cp_size of at most the number of heads");
}

}  // namespace
}  // namespace heddle::tests
