// The sums of squares on the CPU and on devices agree.
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "lib/train/optimizer/norm.h"

namespace heddle {
namespace {

TEST(SumOfSquares, EqualsTheCpuOnADevice) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kDouble}) {
    std::vector<at::Tensor> tensors;
    double wanted = 0;
    for (const int64_t rows : {1, 3, 70001}) {
      tensors.push_back(at::randn({rows, 2}, at::kFloat).mul_(3).to(type));
      wanted += train::sum_of_squares(tensors.back());
    }
    const at::Tensor got = train::sum_of_squares_on_device(tensors);
    EXPECT_EQ(got.scalar_type(), at::kDouble);
    EXPECT_EQ(got.sizes(), at::IntArrayRef({1}));
    EXPECT_NEAR(got.item<double>(), wanted, 1e-12 * wanted) << c10::toString(type);
  }
}

TEST(SumOfSquares, DoesNotOverflowForFloats) {
  const std::vector<at::Tensor> large = {at::randn({8}, at::kFloat).sign_().mul_(1e30)};
  EXPECT_NEAR(train::sum_of_squares_on_device(large).item<double>(), 8e60, 1e54);
  EXPECT_NEAR(train::sum_of_squares(large[0]), 8e60, 1e54);
}

// AdamW squares clipped gradients in float32, and divides by a float32 divisor.
TEST(LargestNorm, IsThatWhoseSquareAndDivisorAreFinite) {
  const double most = std::numeric_limits<float>::max();
  EXPECT_EQ(train::largest_norm(std::nullopt), std::sqrt(most));
  EXPECT_EQ(train::largest_norm(1e30), std::sqrt(most));
  EXPECT_EQ(train::largest_norm(1.0), std::sqrt(most));
  EXPECT_EQ(train::largest_norm(1e-30), 1e-30 * most);
  EXPECT_TRUE(std::isinf(train::clip_divisor(at::full({1}, 2 * most, at::kDouble), 1.0).item<float>()));
  using Case = std::pair<double, float>;
  for (const auto& [norm, skip] :
       std::vector<Case>{{1.0, 0.0f}, {8.0, 0.0f}, {8.1, 1.0f}, {INFINITY, 1.0f}, {NAN, 1.0f}})
    EXPECT_EQ(train::skip_above(at::full({1}, norm, at::kDouble), 8.0).item<float>(), skip) << norm;
  for (const auto& [loss, skip] :
       std::vector<Case>{{1e30, 0.0f}, {INFINITY, 1.0f}, {-INFINITY, 1.0f}, {NAN, 1.0f}})
    EXPECT_EQ(train::skip_above(at::full({1}, 1.0, at::kDouble), 8.0,
                                train::nonfinite_flag(at::full({1}, loss, at::kDouble)))
                  .item<float>(),
              skip)
        << loss;
}

}  // namespace
}  // namespace heddle
