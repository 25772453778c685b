// RoPE frequencies and scaling factors equal transformers' (tests/golden/make_rotary.py). Tables of angles.
#include "heddle/nn/rotary.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "thrown.h"

namespace heddle {
namespace {

RotaryScaling scaling_of(const nlohmann::json& rope) {
  using Kind = RotaryScaling::Kind;
  RotaryScaling out;
  const std::string type = rope["rope_type"];
  out.kind = type == "yarn" ? Kind::yarn : type == "llama3" ? Kind::llama3 : Kind::linear;
  out.factor = rope["factor"];
  out.low_freq_factor = rope.value("low_freq_factor", 1.0);
  out.high_freq_factor = rope.value("high_freq_factor", 4.0);
  out.original_positions = rope.value("original_max_position_embeddings", int64_t{8192});
  out.beta_fast = rope.value("beta_fast", 32.0);
  out.beta_slow = rope.value("beta_slow", 1.0);
  out.truncate = rope.value("truncate", true);
  out.attention_factor = rope.value("attention_factor", 0.0);
  out.mscale = rope.value("mscale", 0.0);
  out.mscale_all_dim = rope.value("mscale_all_dim", 0.0);
  return out;
}

TEST(Rotary, FrequenciesAndFactorsEqualTransformers) {
  const std::string path = std::string(HEDDLE_SOURCE_DIR) + "/tests/golden/rotary/golden.json";
  const auto cases = nlohmann::json::parse(std::ifstream(path));
  ASSERT_EQ(cases.size(), 8u);
  for (const auto& one : cases) {
    SCOPED_TRACE(one["rope_parameters"].dump());
    const auto& rope = one["rope_parameters"];
    const auto dim =
        static_cast<int64_t>(one["head_dim"].get<double>() * rope.value("partial_rotary_factor", 1.0));
    const at::Tensor want = at::tensor(one["frequencies"].get<std::vector<float>>());
    const at::Tensor got = model::rotary_frequencies(dim, rope["rope_theta"], scaling_of(rope));
    ASSERT_EQ(got.sizes(), want.sizes());
    EXPECT_LE(((got - want) / want).abs().max().item<double>(), 3e-7);
    EXPECT_NEAR(model::rotary_factor(scaling_of(rope)), one["factor"].get<double>(), 1e-12);
  }
}

TEST(Rotary, AnglesCarryTheFactorAndThePart) {
  RotaryScaling scaling;
  scaling.kind = RotaryScaling::Kind::yarn;
  scaling.factor = 4;
  scaling.attention_factor = 1.5;
  Rotary rotary(12, 10000.0, scaling, 6);
  Batch batch;
  batch.tokens = at::zeros({2, 5}, at::kLong);
  const model::RotaryAngles& angles = rotary.angles(batch);
  const at::Tensor turns =
      at::arange(5, at::kFloat).unsqueeze(1) * model::rotary_frequencies(6, 10000.0, scaling);
  EXPECT_TRUE(at::allclose(angles.cos, turns.cos().repeat({2, 1}) * 1.5));
  EXPECT_TRUE(at::allclose(angles.sin, turns.sin().repeat({2, 1}) * 1.5));
  EXPECT_EQ(angles.part.head_dim, 12);
  EXPECT_EQ(angles.part.first, 0);
}

TEST(Rotary, TakesAnyFrequenciesAndAFactor) {
  Batch batch;
  batch.tokens = at::zeros({2, 5}, at::kLong);
  Rotary usual(8, 10000.0, {}), given(model::rotary_frequencies(8, 10000.0, {}));
  EXPECT_TRUE(at::equal(given.angles(batch).cos, usual.angles(batch).cos));
  Rotary longer(at::full({2}, 0.5, at::kDouble), 1.25, {.head_dim = 8, .first = 2, .interleaved = true});
  const model::RotaryAngles& angles = longer.angles(batch);
  EXPECT_EQ(angles.cos.size(1), 2);
  EXPECT_NEAR(angles.cos[1][0].item<double>(), 1.25 * std::cos(0.5), 1e-6);
  EXPECT_EQ(angles.part.first, 2);
  EXPECT_TRUE(angles.part.interleaved);
  EXPECT_EQ(
      tests::thrown_by([] {
        Rotary(at::zeros({2, 2}));
      }),
      "error[input] Rotary: the frequencies are no vector of real numbers\n  hint: give one for each pair "
      "of rotated numbers, [rotated numbers / 2]");
  EXPECT_EQ(tests::thrown_by([] { Rotary(at::zeros({4}), 1, {.head_dim = 8, .first = 2}); }),
            "error[input] Rotary: 8 rotated numbers from 2 on are not within a head of 8\n  hint: give fewer "
            "frequencies, or the head_dim that holds them");
}

}  // namespace
}  // namespace heddle
