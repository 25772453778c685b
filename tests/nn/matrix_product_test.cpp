// Products below and above the size from which packed products are used.
#include "heddle/nn/linear.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <tuple>

namespace heddle::model {
namespace {

double worst(const at::Tensor& got, const at::Tensor& want) {
  return (got.to(at::kDouble) - want).abs().max().item<double>();
}

// Tolerance for sums of k float32 products of magnitude 1.
double tolerance(int64_t k) {
  return 1e-6 * static_cast<double>(k);
}

struct MatrixProductTest : ::testing::TestWithParam<std::tuple<int64_t, int64_t, int64_t>> {
  void SetUp() override {
    at::manual_seed(11);
    const auto [m, k, n] = GetParam();
    a = at::randn({m, k});
    b = at::randn({k, n});
    row = at::randn({n});
    matrix = at::randn({m, n});
    want = at::mm(a.to(at::kDouble), b.to(at::kDouble));
    close = tolerance(k);
  }
  at::Tensor a, b, row, matrix, want;
  double close = 0;
};

TEST_P(MatrixProductTest, EqualsTheProductInDoubleForEveryWayAMatrixLies) {
  const at::Tensor a_turned = a.t().contiguous().t(), b_turned = b.t().contiguous().t();
  const at::Tensor columns =
      at::cat({matrix, b.t().new_ones({a.size(0), 3}), a}, 1).narrow(1, matrix.size(1) + 3, a.size(1));
  const at::Tensor sparse = at::stack({b, b}, 2).select(2, 0);  // no stride is 1
  for (const at::Tensor& left : {a, a_turned, columns})
    for (const at::Tensor& right : {b, b_turned, sparse})
      EXPECT_LT(worst(matrix_product(left, right), want), close);
}

TEST_P(MatrixProductTest, AddsARowOrAMatrix) {
  EXPECT_LT(worst(matrix_product(a, b, row), want + row), close);
  EXPECT_LT(worst(matrix_product(a, b, matrix), want + matrix), close);
}

TEST_P(MatrixProductTest, WritesIntoRowsOfALargerMatrixAndAddsToWhatIsThere) {
  const at::Tensor all = at::full({a.size(0) + 2, b.size(1)}, 7.0);
  const at::Tensor rows = all.narrow(0, 1, a.size(0));
  matrix_product_into(rows, a, b);
  EXPECT_LT(worst(rows, want), close);
  matrix_product_into(rows, a, b, row);
  EXPECT_LT(worst(rows, want + row), close);
  add_matrix_product(rows, a, b);
  EXPECT_LT(worst(rows, want * 2 + row), 2 * close);
  EXPECT_TRUE(at::equal(all[0], at::full({b.size(1)}, 7.0)));
  EXPECT_TRUE(at::equal(all[-1], at::full({b.size(1)}, 7.0)));
}

// Rows or columns with stride 0, as expand() and the backward of sum() create them.
TEST_P(MatrixProductTest, TakesExpandedMatrices) {
  const auto [m, k, n] = GetParam();
  const at::Tensor row_of_a = a[0].expand({m, k}), column_of_a = a.select(1, 0).unsqueeze(1).expand({m, k});
  const at::Tensor row_of_b = b[0].expand({k, n}), column_of_b = b.select(1, 0).unsqueeze(1).expand({k, n});
  const at::Tensor one = at::ones({1, 1}).expand({k, n});
  for (const at::Tensor& left : {row_of_a, column_of_a, a})
    for (const at::Tensor& right : {row_of_b, column_of_b, one, b}) {
      const at::Tensor expected = at::mm(left.to(at::kDouble), right.to(at::kDouble));  // values may be large
      EXPECT_TRUE(at::allclose(matrix_product(left, right).to(at::kDouble), expected, 1e-4, 1e-4));
    }
}

TEST_P(MatrixProductTest, RepeatsItsBits) {
  EXPECT_TRUE(at::equal(matrix_product(a, b), matrix_product(a, b)));
}

// The first three cases have one row, shorter and longer than a register. The last two are large.
INSTANTIATE_TEST_SUITE_P(Sizes, MatrixProductTest,
                         ::testing::Values(std::tuple{1, 5, 7}, std::tuple{1, 48, 1}, std::tuple{1, 163, 530},
                                           std::tuple{3, 5, 7}, std::tuple{130, 70, 33},
                                           std::tuple{161, 163, 167}, std::tuple{512, 100, 129}));

TEST(MatrixProduct, KeepsDtypesThatItDoesNotSendElsewhere) {
  const at::Tensor a = at::randn({170, 170}, at::kDouble), b = at::randn({170, 170}, at::kDouble);
  EXPECT_TRUE(at::equal(matrix_product(a, b), at::mm(a, b)));
  const at::Tensor low = a.to(at::kBFloat16);
  EXPECT_TRUE(at::equal(matrix_product(low, low), at::mm(low, low)));
}

// Accumulates into a range of columns and leaves other columns unchanged, as products of fused layers need.
TEST(MatrixProduct, AddsIntoAPartOfAMatrix) {
  at::manual_seed(12);
  const at::Tensor a = at::randn({161, 163}), b = at::randn({163, 167}), all = at::randn({161, 300});
  const at::Tensor want = all.clone();
  want.narrow(1, 50, 167).add_(at::mm(a.to(at::kDouble), b.to(at::kDouble)).to(at::kFloat));
  add_matrix_product(all.narrow(1, 50, 167), a, b);
  EXPECT_TRUE(at::equal(all.narrow(1, 0, 50), want.narrow(1, 0, 50)));
  EXPECT_TRUE(at::equal(all.narrow(1, 217, 83), want.narrow(1, 217, 83)));
  EXPECT_LE(worst(all, want.to(at::kDouble)), tolerance(163));
}

}  // namespace
}  // namespace heddle::model
