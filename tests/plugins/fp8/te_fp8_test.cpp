// Products in fp8 with the scaling of Transformer Engine's recipes equal operands rounded one by one, and
// whole runs train with them.
#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/exp2.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include <array>
#include <cmath>
#include <numeric>

#include "heddle/plugin/registry.h"
#include "plugins/fp8/te_products.h"
#include "plugins/whole_runs.h"

namespace heddle::tests {
namespace {

using fp8::Recipe;

constexpr std::array<int64_t, 5> kBegins = {0, 37, 37, 180, 200};  // one expert has no rows

// Exponents vary between elements, so that a shared scale loses small elements.
at::Tensor of_wide_range(at::IntArrayRef sizes) {
  return at::randn(sizes) * at::exp2(-at::randint(0, 20, sizes).to(at::kFloat));
}

float nearest_e4m3(double value) {
  if (value == 0) return 0;
  const int exponent = std::max(std::ilogb(std::abs(value)), -6);  // of normal numbers
  const double step = std::ldexp(1.0, exponent - 3);
  return static_cast<float>(std::min(std::nearbyint(std::abs(value) / step) * step, 448.0) *
                            (value < 0 ? -1 : 1));
}

// Rounds x [rows, columns] in blocks, with loops over elements.
at::Tensor by_numbers(const at::Tensor& x, int64_t height, int64_t width) {
  at::Tensor out = x.clone().contiguous();
  auto of = out.accessor<float, 2>();
  for (int64_t r = 0; r < out.size(0); r += height)
    for (int64_t c = 0; c < out.size(1); c += width) {
      const int64_t rows = std::min(height, out.size(0) - r), columns = std::min(width, out.size(1) - c);
      const auto most = out.narrow(0, r, rows).narrow(1, c, columns).abs().max().item<double>();
      const double scale = most == 0 ? 1 : std::exp2(std::floor(std::log2(448 / most)));
      for (int64_t i = r; i < r + rows; ++i)
        for (int64_t j = c; j < c + columns; ++j)
          of[i][j] = static_cast<float>(nearest_e4m3(of[i][j] * scale) / scale);
    }
  return out;
}

// Rounds with one scale that is not a power of two.
at::Tensor by_tensor(const at::Tensor& x, at::ScalarType type = at::kFloat8_e4m3fn) {
  if (x.numel() == 0) return x;
  const double largest = type == at::kFloat8_e5m2 ? 57344 : 448,
               scale = largest / x.abs().max().item<double>();
  return (x * scale).clamp(-largest, largest).to(type).to(at::kFloat) / scale;
}

struct Operands {
  at::Tensor x, weights, dy;
};

Operands operands() {
  return {of_wide_range({kBegins.back(), 192}), of_wide_range({4, 160, 192}),
          of_wide_range({kBegins.back(), 160})};
}

using Round = std::function<at::Tensor(const at::Tensor&)>;

struct Rounds {
  Round x, weights, dy, weights_back, along_dy, along_x;
};

Rounds rounds_of(Recipe recipe) {
  const auto blocks = [](int64_t height, int64_t width) -> Round {
    return [=](const at::Tensor& x) { return by_numbers(x, height, width); };
  };
  if (recipe == Recipe::block)
    return {blocks(1, 128),   blocks(128, 128), blocks(1, 128),
            blocks(128, 128), blocks(128, 1),   blocks(128, 1)};
  if (recipe == Recipe::mxfp8)
    return {blocks(1, 32), blocks(1, 32), blocks(1, 32), blocks(32, 1), blocks(32, 1), blocks(32, 1)};
  const Round input = [](const at::Tensor& x) { return by_tensor(x); };
  const Round gradient = [](const at::Tensor& x) { return by_tensor(x, at::kFloat8_e5m2); };
  return {input, input, gradient, input, gradient, input};
}

void expect_products(const at::Tensor& got, const at::Tensor& want) {
  ASSERT_EQ(got.sizes(), want.sizes());
  if (want.numel() == 0) return;
  EXPECT_LE((got - want).abs().max().item<double>(), 2e-6 * want.abs().max().item<double>());
}

class TeProducts : public ::testing::TestWithParam<Recipe> {};

TEST_P(TeProducts, RoundBothOperandsAlongTheInnerDim) {
  at::manual_seed(3);
  const auto [x, weights, dy] = operands();
  const Rounds round = rounds_of(GetParam());
  const auto products = fp8::te_products(GetParam());
  const at::Tensor y = products->forward(x, weights, kBegins), dx = products->backward(dy, weights, kBegins),
                   dw = products->weight_gradient(dy, x, kBegins);
  for (size_t e = 0; e + 1 < kBegins.size(); ++e) {
    SCOPED_TRACE(e);
    const int64_t begin = kBegins[e], count = kBegins[e + 1] - begin;
    const at::Tensor own_x = x.narrow(0, begin, count), own_dy = dy.narrow(0, begin, count);
    const at::Tensor w = weights.select(0, static_cast<int64_t>(e));
    expect_products(y.narrow(0, begin, count), at::matmul(round.x(own_x), round.weights(w).t()));
    expect_products(dx.narrow(0, begin, count), at::matmul(round.dy(own_dy), round.weights_back(w)));
    expect_products(dw.select(0, static_cast<int64_t>(e)),
                    at::matmul(round.along_dy(own_dy).t(), round.along_x(own_x)));
  }
}

TEST_P(TeProducts, KeepZerosAndTinyValuesFinite) {
  const auto products = fp8::te_products(GetParam());
  const at::Tensor x = at::zeros({64, 64}), weights = at::zeros({1, 32, 64});
  x[0].fill_(1e-38);
  const std::array<int64_t, 2> all = {0, 64};
  EXPECT_TRUE(products->forward(x, weights, all).isfinite().all().item<bool>());
  EXPECT_TRUE(products->weight_gradient(at::zeros({64, 32}), x, all).isfinite().all().item<bool>());
}

INSTANTIATE_TEST_SUITE_P(Recipes, TeProducts,
                         ::testing::Values(Recipe::current, Recipe::block, Recipe::mxfp8));

TEST(TeFp8, RoundsABlockOfPowersOfTwoExactly) {
  const at::Tensor x = of_wide_range({40, 150}).to(at::kBFloat16);
  EXPECT_TRUE(fp8::rounded_in_blocks(x, 1, 32).to(at::kFloat).equal(by_numbers(x.to(at::kFloat), 1, 32)));
}

std::string te_section(const std::string& name) {
  return "te_fp8: {recipe: " + name + "}\n";
}

constexpr const char* kMixture =
    "{model_type: qwen3_moe, vocab_size: 53, hidden_size: 32, intermediate_size: 32, moe_intermediate_size: "
    "32, "
    "num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2, head_dim: 16, num_experts: 4, "
    "num_experts_per_tok: 2, max_position_embeddings: 16}";

TEST(TeFp8, TrainsMixturesEquallyOnShardsAndExpertRanks) {
  WholeRuns runs;
  runs.model = kMixture;
  const std::string float32 = "mp_policy: {param_dtype: float32, reduce_dtype: float32}";
  const Told plain = runs.train({"run", 1, "{strategy: single}"}, "plain", 4);
  for (const char* recipe : {"block", "mxfp8", "current"}) {
    const Told one = runs.train({"run", 1, "{strategy: single}", te_section(recipe)}, "one", 4);
    EXPECT_NE(one.losses, plain.losses);
    EXPECT_NEAR(one.losses[0], plain.losses[0], 2e-2);
    for (const std::string& distributed :
         {"{strategy: fsdp2, " + float32 + "}", "{strategy: fsdp2, ep_size: 2, " + float32 + "}"}) {
      SCOPED_TRACE(recipe + distributed);
      const bool by_group =
          recipe == std::string("current") && distributed.find("ep_size") != std::string::npos;
      const Told other = runs.train({"run", 2, distributed, te_section(recipe)}, "other", 4);
      // The tokens of an expert share one scale. With ep_size they come from both ranks.
      EXPECT_NEAR(other.losses[0], one.losses[0], by_group ? 2e-3 : 2e-5);
      EXPECT_NEAR(other.norms[0], one.norms[0], (by_group ? 2e-2 : 2e-4) * one.norms[0]);
    }
  }
}

}  // namespace
}  // namespace heddle::tests
