// Frequencies equal transformers' (tests/golden/make_rotary.py); parts of heads turn, and the rest stays.
#include "heddle/nn/rotary.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "nn/against_aten.h"
#include "thrown.h"

namespace heddle {
namespace {

using tests::expect_same;
using tests::tolerance_of;
using Inputs = std::vector<at::Tensor>;

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

// One number after the other, so that no layout is shared with the code under test.
at::Tensor by_pairs(const at::Tensor& x, const model::RotaryAngles& angles) {
  const model::HeadPart& part = angles.part;
  const int64_t half = angles.cos.size(1), heads = x.size(1) / part.head_dim;
  std::vector<at::Tensor> columns = at::unbind(x, 1);
  for (int64_t head = 0; head < heads; ++head)
    for (int64_t i = 0; i < half; ++i) {
      const int64_t begin = head * part.head_dim + part.first;
      const int64_t low = begin + (part.interleaved ? 2 * i : i),
                    high = part.interleaved ? low + 1 : low + half;
      const at::Tensor a = columns[low], b = columns[high], c = angles.cos.select(1, i),
                       s = angles.sin.select(1, i);
      columns[low] = (a * c - b * s).to(x.scalar_type());
      columns[high] = (b * c + a * s).to(x.scalar_type());
    }
  return at::stack(columns, 1);
}

class RotaryPart : public ::testing::TestWithParam<at::ScalarType> {};

TEST_P(RotaryPart, TurnsAndTheRestStays) {
  const at::Tensor angle = at::randn({4, 3}) * 3;
  for (const bool interleaved : {false, true})
    for (const auto& [head_dim, first] : {std::pair<int64_t, int64_t>{6, 0}, {10, 0}, {10, 4}, {11, 2}})
      for (const int64_t columns : {2 * head_dim, 2 * head_dim + 3}) {  // rows side by side, and with gaps
        SCOPED_TRACE(std::to_string(interleaved) + " " + std::to_string(head_dim) + " " +
                     std::to_string(first));
        const model::RotaryAngles angles{
            angle.cos() * 1.3, angle.sin() * 1.3, {head_dim, first, interleaved}};
        const at::Tensor x = at::randn({4, columns}, at::kDouble).to(GetParam());
        const auto heads = [&](const at::Tensor& all) { return all.narrow(1, 0, 2 * head_dim); };
        expect_same([&](const Inputs& in) { return model::rotate(heads(in[0]), angles); },
                    [&](const Inputs& in) { return by_pairs(heads(in[0]), angles); }, {x},
                    tolerance_of(GetParam()));
      }
}

// Without the kernel of the CPU: rows whose numbers lie apart.
TEST_P(RotaryPart, TurnsTheSameByOperators) {
  const at::Tensor angle = at::randn({4, 3}) * 3;
  for (const bool interleaved : {false, true}) {
    const model::RotaryAngles angles{angle.cos(), angle.sin(), {10, 4, interleaved}};
    const at::Tensor x = at::randn({20, 4}, at::kDouble).to(GetParam());
    expect_same([&](const Inputs& in) { return model::rotate(in[0].t(), angles); },
                [&](const Inputs& in) { return by_pairs(in[0].t(), angles); }, {x}, tolerance_of(GetParam()));
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, RotaryPart, ::testing::Values(at::kFloat, at::kDouble, at::kBFloat16));

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
