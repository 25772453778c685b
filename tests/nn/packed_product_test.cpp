// Packed products on every supported instruction set, and experts' products, compared with float64.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <tuple>
#include <vector>

#include "lib/nn/cpu/grouped_product_cpu.h"
#include "lib/nn/cpu/packed_product_cpu.h"
#include "lib/nn/experts/grouped_product.h"

namespace heddle::model {
namespace {

using Sizes = std::array<int64_t, 3>;  // rows, columns, depth

// Sizes below a tile, at the edges of tiles, panels and blocks, and beyond them.
constexpr std::array<Sizes, 8> kProducts{{{1, 1, 1},
                                          {5, 3, 7},
                                          {6, 64, 16},
                                          {7, 17, 1},
                                          {37, 100, 301},
                                          {193, 65, 257},
                                          {12, 530, 40},
                                          {400, 33, 520}}};

template <class Number = float>
MatrixView<Number> view_of(const at::Tensor& matrix) {
  return {matrix.const_data_ptr<Number>(), matrix.stride(0), matrix.stride(1)};
}

TEST(PackedProduct, EqualsTheProductInDoubleHoweverItsMatricesLie) {
  at::manual_seed(3);
  for (const auto [rows, columns, depth] : kProducts)
    for (const bool a_turned : {false, true})
      for (const bool b_turned : {false, true}) {
        const at::Tensor a = a_turned ? at::randn({depth, rows}).t() : at::randn({rows, depth});
        const at::Tensor b = b_turned ? at::randn({columns, depth}).t() : at::randn({depth, columns});
        const at::Tensor want = at::mm(a.to(at::kDouble), b.to(at::kDouble));
        for (const PackedProductKernel<float> kernel : supported_packed_products()) {
          const at::Tensor all = at::full({rows + 2, columns + 3}, 7.0, at::kFloat);
          kernel({view_of(a), view_of(b), all[1].mutable_data_ptr<float>() + 1, columns + 3, rows, columns,
                  depth});
          const at::Tensor got = all.narrow(0, 1, rows).narrow(1, 1, columns);
          EXPECT_TRUE(at::allclose(got.to(at::kDouble), want, 1e-5, 1e-6 * static_cast<double>(depth)))
              << rows << " x " << depth << " x " << columns << (a_turned ? " a^T" : "")
              << (b_turned ? " b^T" : "");
          got.fill_(7.0);
          EXPECT_TRUE(all.eq(7.0).all().item<bool>()) << "wrote beside its output";
        }
      }
}

TEST(PackedProduct, SumsBfloat16InFloat32) {
  if (!has_packed_product_of_bfloat16()) GTEST_SKIP() << "the processor has no AVX512_BF16";
  at::manual_seed(4);
  for (const auto [rows, columns, depth] : kProducts)
    for (const bool a_turned : {false, true})
      for (const bool b_turned : {false, true}) {
        const auto random = [](int64_t m, int64_t n, bool turned) {
          return turned ? at::randn({n, m}).to(at::kBFloat16).t() : at::randn({m, n}).to(at::kBFloat16);
        };
        const at::Tensor a = random(rows, depth, a_turned), b = random(depth, columns, b_turned);
        const at::Tensor want = at::mm(a.to(at::kDouble), b.to(at::kDouble));
        const at::Tensor all = at::full({rows + 2, columns + 3}, 7.0, at::kBFloat16);
        packed_product(PackedProduct<c10::BFloat16>{view_of<c10::BFloat16>(a), view_of<c10::BFloat16>(b),
                                                    all[1].mutable_data_ptr<c10::BFloat16>() + 1, columns + 3,
                                                    rows, columns, depth});
        const at::Tensor got = all.narrow(0, 1, rows).narrow(1, 1, columns);
        EXPECT_TRUE(at::allclose(got.to(at::kDouble), want, 1.0 / 256, 1e-6 * static_cast<double>(depth)))
            << rows << " x " << depth << " x " << columns << (a_turned ? " a^T" : "")
            << (b_turned ? " b^T" : "");
        got.fill_(7.0);
        EXPECT_TRUE(all.eq(7.0).all().item<bool>()) << "wrote beside its output";
      }
}

// Returns a slice of a larger matrix, so that strides do not follow from sizes.
at::Tensor random_part(int64_t rows, int64_t columns, bool turned) {
  const at::Tensor all = turned ? at::randn({columns + 1, rows + 5}).t() : at::randn({rows + 1, columns + 5});
  return all.narrow(0, 1, rows).narrow(1, 0, columns);
}

// A transposed `a` is read in place up to a depth of 128. Blocks have 192 rows, 512 columns, a depth of 256.
// The number of threads changes no bit.
TEST(MatrixProductCpu, EqualsTheProductInDoubleForEveryStrideAndAnyThreads) {
  at::manual_seed(5);
  for (const auto [rows, columns, depth] : {Sizes{1, 1, 1}, Sizes{7, 17, 5}, Sizes{41, 70, 128},
                                            Sizes{41, 70, 129}, Sizes{401, 33, 300}, Sizes{193, 530, 257}})
    for (const bool a_turned : {false, true})
      for (const bool b_turned : {false, true})
        for (const bool adds : {false, true}) {
          SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(depth) + " x " +
                       std::to_string(columns) + (a_turned ? " a^T" : "") + (b_turned ? " b^T" : "") +
                       (adds ? " adds" : ""));
          const at::Tensor a = random_part(rows, depth, a_turned), b = random_part(depth, columns, b_turned);
          const at::Tensor before = at::randn({rows, columns}),
                           want = at::mm(a.to(at::kDouble), b.to(at::kDouble));
          at::Tensor first;
          for (const int threads : {1, 2, 3}) {
            at::set_num_threads(threads);
            const at::Tensor all = at::full({rows + 2, columns + 3}, 7.0, at::kFloat);
            const at::Tensor out = all.narrow(0, 1, rows).narrow(1, 1, columns);
            out.copy_(before);
            matrix_product_cpu(out, a, b, adds);
            const at::Tensor got = out.clone();
            EXPECT_TRUE(at::allclose(got.to(at::kDouble), adds ? want + before : want, 1e-5,
                                     1e-6 * static_cast<double>(depth)));
            if (!first.defined()) first = got;
            EXPECT_TRUE(at::equal(got, first)) << threads << " threads";
            out.fill_(7.0);
            EXPECT_TRUE(all.eq(7.0).all().item<bool>()) << "wrote beside its output";
          }
          at::set_num_threads(1);
        }
}

// Uneven row counts, one expert without rows and one with most rows, odd sizes.
struct GroupedProductTest : ::testing::TestWithParam<std::tuple<int, at::ScalarType>> {
  void SetUp() override { at::set_num_threads(std::get<0>(GetParam())); }
  void TearDown() override { at::set_num_threads(1); }
  at::ScalarType dtype = std::get<1>(GetParam());
  double close = dtype == at::kFloat ? 1e-5 : 1.0 / 128;
  std::vector<int64_t> begins{0, 1, 1, 20, 320, 333};
  at::Tensor x = at::randn({333, 71}).to(dtype), dy = at::randn({333, 301}).to(dtype),
             weights = at::randn({5, 301, 71}).to(dtype);
};

TEST_P(GroupedProductTest, EqualsOneProductForEachExpert) {
  const at::Tensor forward = grouped_product(x, weights, begins),
                   back = grouped_product_back(dy, weights, begins),
                   gradient = grouped_weight_gradient(dy, x, begins);
  for (int64_t e = 0; e < 5; ++e) {
    const auto rows = [&](const at::Tensor& of) {
      return of.slice(0, begins[e], begins[e + 1]).to(at::kDouble);
    };
    const at::Tensor weight = weights[e].to(at::kDouble);
    EXPECT_TRUE(at::allclose(rows(forward), rows(x).mm(weight.t()), close, 3e-4)) << e;
    EXPECT_TRUE(at::allclose(rows(back), rows(dy).mm(weight), close, 3e-4)) << e;
    EXPECT_TRUE(at::allclose(gradient[e].to(at::kDouble), rows(dy).t().mm(rows(x)), close, 3e-4)) << e;
  }
}

TEST_P(GroupedProductTest, RepeatsItsBitsWhateverTheThreads) {
  const at::Tensor forward = grouped_product(x, weights, begins),
                   gradient = grouped_weight_gradient(dy, x, begins);
  at::set_num_threads(1);
  EXPECT_TRUE(at::equal(forward, grouped_product(x, weights, begins)));
  EXPECT_TRUE(at::equal(gradient, grouped_weight_gradient(dy, x, begins)));
}

INSTANTIATE_TEST_SUITE_P(Threads, GroupedProductTest,
                         ::testing::Combine(::testing::Values(1, 2, 3),
                                            ::testing::Values(at::kFloat, at::kBFloat16)));

}  // namespace
}  // namespace heddle::model
