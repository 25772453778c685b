// The two ways of summing squares, for the CPU and for devices, agree.
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "heddle/train/norm.h"

namespace heddle {
namespace {

TEST(SumOfSquares, OfADeviceIsThatOfTheCpu) {
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

TEST(SumOfSquares, OfFloatsDoesNotOverflow) {
  const std::vector<at::Tensor> large = {at::randn({8}, at::kFloat).sign_().mul_(1e30)};
  EXPECT_NEAR(train::sum_of_squares_on_device(large).item<double>(), 8e60, 1e54);
  EXPECT_NEAR(train::sum_of_squares(large[0]), 8e60, 1e54);
}

}  // namespace
}  // namespace heddle
