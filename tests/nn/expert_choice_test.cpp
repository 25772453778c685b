// Top-k choice with NaN or infinite scores: the chosen experts stay distinct, and NaN is not hidden.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "heddle/base/error.h"
#include "heddle/nn/router.h"
#include "tests/thrown.h"

namespace heddle::model {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

Scored choose_three(const at::Tensor& logits, const at::Tensor& bias, bool normalise = false) {
  RouterRule rule;
  rule.score = RouterRule::Score::sigmoid;
  rule.top_k = 3;
  rule.normalise = normalise;
  return score_experts(logits, bias, rule);
}

void expect_distinct(const at::Tensor& experts, int64_t of) {
  for (int64_t token = 0; token < experts.size(0); ++token) {
    std::set<int64_t> seen;
    for (int64_t j = 0; j < experts.size(1); ++j) seen.insert(experts[token][j].item<int64_t>());
    EXPECT_EQ(static_cast<int64_t>(seen.size()), experts.size(1)) << experts;
    EXPECT_GE(*seen.begin(), 0);
    EXPECT_LT(*seen.rbegin(), of);
  }
}

TEST(ExpertChoice, TakesNaNFirstAndGivesItsWeight) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble})
    for (const bool negative : {false, true})
      for (const int64_t place : {0, 1, 4}) {
        const at::Tensor logits = at::tensor({0.5, -1.0, 2.0, 1.0, -3.0}, at::kDouble).view({1, 5}).to(dtype);
        logits[0][place] = negative ? -NAN : NAN;
        const Scored scored = choose_three(logits, {});
        EXPECT_TRUE(at::equal(scored.experts, std::get<1>(at::topk(at::sigmoid(logits), 3, 1)))) << place;
        EXPECT_EQ(scored.experts[0][0].item<int64_t>(), place);
        EXPECT_TRUE(at::equal(scored.weights[0].isnan(), at::tensor({1, 0, 0}).to(at::kBool)));
        EXPECT_TRUE(choose_three(logits, {}, true).weights.isnan().all().item<bool>());  // NaN sum
      }
}

TEST(ExpertChoice, IsDistinctForNan) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const at::Tensor logits = at::full({2, 5}, NAN, dtype);
    const Scored scored = choose_three(logits, {});
    EXPECT_TRUE(at::equal(scored.experts, at::arange(3).expand({2, 3})));
    EXPECT_TRUE(scored.weights.isnan().all().item<bool>());
    RouterRule softmax;
    softmax.top_k = 5;
    logits[0][2] = 1.0;
    expect_distinct(score_experts(logits, {}, softmax).experts, 5);
  }
}

TEST(ExpertChoice, TakesABiasOfMinusInfinityLast) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const at::Tensor logits = at::tensor({0.5, -1.0, 2.0, 1.0, -3.0}, at::kDouble).view({1, 5}).to(dtype);
    const auto chosen = [&](const at::Tensor& bias) {
      const Scored scored = choose_three(logits, bias);
      EXPECT_TRUE(at::equal(scored.weights, at::gather(at::sigmoid(logits), 1, scored.experts)));
      return scored.experts[0];
    };
    const at::Tensor all = at::full({5}, -kInfinite, dtype), most = all.clone();
    EXPECT_TRUE(at::equal(chosen(all), at::tensor({0, 1, 2}, at::kLong)));
    most[4] = 0.0;
    EXPECT_TRUE(at::equal(chosen(most), at::tensor({4, 0, 1}, at::kLong)));
    const at::Tensor up = at::tensor({0.0, kInfinite, 0.0, NAN, -kInfinite}, at::kDouble).to(dtype);
    EXPECT_TRUE(at::equal(chosen(up), at::tensor({3, 1, 2}, at::kLong)));
  }
}

// -0 and +0 are equal, so the lowest index is chosen.
TEST(ExpertChoice, TakesTheFirstOfZerosOfBothSigns) {
  const at::Tensor logits = at::full({1, 4}, -kInfinite), bias = at::tensor({-0.0, 0.0, -0.0, 0.0});
  EXPECT_TRUE(at::equal(choose_three(logits, bias.to(at::kFloat)).experts[0], at::arange(3)));
}

TEST(ExpertChoice, RefusesToCountAnExpertThatIsNotThere) {
  EXPECT_THAT(tests::thrown_by([&] {
                count_choices(at::tensor({0, 3}, at::kLong).view({2, 1}), 1, 3);
              }),
              ::testing::AllOf(::testing::HasSubstr("error[internal]"),
                               ::testing::HasSubstr("a token chose expert 3; experts are 0 to 2")));
}

}  // namespace
}  // namespace heddle::model
