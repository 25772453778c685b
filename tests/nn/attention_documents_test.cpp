// Packed documents equal each document alone bit for bit, and plain attention in float64. Row loops agree on
// every instruction set.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "heddle/nn/attention_core.h"
#include "lib/nn/attention/attend_rows.h"

namespace heddle {
namespace {

// Lengths at and around the sizes of registers, blocks and tiles.
constexpr int64_t kLengths[] = {1, 15, 16, 17, 63, 64, 65, 234};

struct DocumentCase {
  std::string name;
  int64_t head_dim, key_heads, queries_of_key;
  AttentionOptions options{};
  bool sinks = false;
};

const std::vector<DocumentCase> kDocumentCases = {
    {"one head", 64, 1, 1},
    {"two queries of a key", 64, 2, 2},
    {"four queries of a key", 16, 1, 4},
    {"half a register", 40, 2, 1},
    {"odd width", 33, 1, 2},
    {"narrow", 6, 2, 2},
    {"window", 32, 1, 2, {true, 20}},
    {"window and sinks", 64, 1, 2, {true, 37}, true},
    {"full", 48, 1, 2, {false}},
    {"soft cap", 64, 1, 1, {true, 0, 0, 2.0}},
    {"values of another width", 64, 1, 2, {true, 0, 0, 0, 24}},
};

// q, k, v, d_out and the gradients share one dtype. y is the output of attend().
struct Attended {
  at::Tensor y, q, k, v, sinks;
};

struct DocumentInputs {
  at::Tensor q, k, v, d_out, sinks;
  DocumentInputs part(int64_t first, int64_t count) const {
    const auto rows = [=](const at::Tensor& x) { return x.narrow(0, first, count).clone(); };
    return {rows(q), rows(k), rows(v), rows(d_out), sinks};
  }
};

DocumentInputs document_inputs(const DocumentCase& one, at::ScalarType dtype) {
  at::manual_seed(5);
  int64_t tokens = 0;
  for (const int64_t length : kLengths) tokens += length;
  const int64_t heads = one.key_heads * one.queries_of_key;
  const int64_t value_dim = one.options.value_dim > 0 ? one.options.value_dim : one.head_dim;
  const auto random = [&](int64_t width) { return at::randn({tokens, width}, at::kDouble).to(dtype); };
  return {random(heads * one.head_dim), random(one.key_heads * one.head_dim),
          random(one.key_heads * value_dim), random(heads * value_dim),
          one.sinks ? at::randn({heads}, at::kDouble).to(dtype) : at::Tensor()};
}

Attended attended(const DocumentCase& one, const DocumentInputs& in, const at::Tensor& documents) {
  const auto leaf = [](const at::Tensor& x) {
    return x.defined() ? x.detach().clone().set_requires_grad(true) : x;
  };
  const at::Tensor q = leaf(in.q), k = leaf(in.k), v = leaf(in.v), sinks = leaf(in.sinks);
  const at::Tensor y = model::attend(q, k, v, {1, in.q.size(0), one.head_dim, one.options, sinks}, documents);
  y.backward(in.d_out);
  return {y.detach(), q.grad(), k.grad(), v.grad(), one.sinks ? sinks.grad() : at::Tensor()};
}

// Reference for one document in float64 with the full score matrix.
Attended plainly_attended(const DocumentCase& one, const DocumentInputs& in) {
  const int64_t tokens = in.q.size(0);
  const auto leaf = [](const at::Tensor& x) {
    return x.defined() ? x.detach().to(at::kDouble).clone().set_requires_grad(true) : x;
  };
  const at::Tensor q = leaf(in.q), k = leaf(in.k), v = leaf(in.v), sinks = leaf(in.sinks);
  const auto by_head = [&](const at::Tensor& x, int64_t heads) {
    return x.view({tokens, heads, -1}).transpose(0, 1);
  };
  const int64_t heads = one.key_heads * one.queries_of_key;
  at::Tensor scores =
      by_head(q, heads).matmul(
          by_head(k, one.key_heads).repeat_interleave(one.queries_of_key, 0).transpose(1, 2)) /
      std::sqrt(static_cast<double>(one.head_dim));
  if (const double cap = one.options.soft_cap; cap > 0) scores = (scores / cap).tanh() * cap;
  const at::Tensor away = at::arange(tokens).unsqueeze(1) - at::arange(tokens);
  at::Tensor hidden = one.options.causal ? away < 0 : away != away;
  if (one.options.window > 0) hidden = hidden.logical_or(away.abs() >= one.options.window);
  scores = scores.masked_fill(hidden, -std::numeric_limits<double>::infinity());
  if (one.sinks) scores = at::cat({scores, sinks.view({-1, 1, 1}).expand({-1, tokens, 1})}, 2);
  const at::Tensor y = scores.softmax(2)
                           .narrow(2, 0, tokens)
                           .matmul(by_head(v, one.key_heads).repeat_interleave(one.queries_of_key, 0))
                           .transpose(0, 1)
                           .reshape(in.d_out.sizes());
  y.backward(in.d_out.to(at::kDouble));
  return {y.detach(), q.grad(), k.grad(), v.grad(), one.sinks ? sinks.grad() : at::Tensor()};
}

void expect_attention(const at::Tensor& got, const at::Tensor& want, double tolerance,
                      const std::string& what) {
  const double size = std::max(1.0, want.abs().max().item<double>());
  EXPECT_LE((got.to(at::kDouble) - want).abs().max().item<double>(), tolerance * size) << what;
}

class PackedDocuments : public ::testing::TestWithParam<at::ScalarType> {};

TEST_P(PackedDocuments, EqualEachAloneAndPlainAttention) {
  const double tolerance = GetParam() == at::kDouble ? 1e-12 : GetParam() == at::kFloat ? 1e-5 : 2e-2;
  std::vector<int> offsets = {0};
  for (const int64_t length : kLengths) offsets.push_back(offsets.back() + static_cast<int>(length));
  for (const DocumentCase& one : kDocumentCases) {
    const DocumentInputs in = document_inputs(one, GetParam());
    const Attended packed = attended(one, in, at::tensor(offsets, at::kInt));
    at::Tensor sinks;
    for (size_t i = 0; i < std::size(kLengths); ++i) {
      const int64_t first = offsets[i], count = kLengths[i];
      const DocumentInputs part = in.part(first, count);
      const Attended alone = attended(one, part, {}), plain = plainly_attended(one, part);
      const std::string what = one.name + ", " + std::to_string(count);
      for (at::Tensor Attended::*of : {&Attended::y, &Attended::q, &Attended::k, &Attended::v}) {
        const at::Tensor got = (packed.*of).narrow(0, first, count);
        if (one.sinks)  // LibTorch joins sinks by a function whose bits depend on the number of rows
          expect_attention(got, plain.*of, tolerance, what);
        else
          EXPECT_TRUE(at::equal(got, alone.*of)) << what;
        expect_attention(alone.*of, plain.*of, tolerance, what);
      }
      if (one.sinks) sinks = i == 0 ? plain.sinks : sinks + plain.sinks;
    }
    if (one.sinks) expect_attention(packed.sinks, sinks, tolerance, one.name + ", sinks");
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, PackedDocuments,
                         ::testing::Values(at::kDouble, at::kFloat, at::kBFloat16, at::kHalf),
                         [](const auto& info) { return std::string(c10::toString(info.param)); });

template <class Stored>
class RowLoops : public ::testing::Test {};
using StoredTypes = ::testing::Types<float, c10::BFloat16, c10::Half>;
TYPED_TEST_SUITE(RowLoops, StoredTypes);

template <class Stored>
void expect_written(const model::pack::RowKernels<Stored>& kernels, const at::Tensor& packed, int64_t width) {
  const int64_t rows = packed.size(0);
  const at::ScalarType dtype = c10::CppTypeToScalarType<Stored>::value;
  const at::Tensor factors = at::randn({rows, 1});
  for (const bool add : {false, true}) {
    const at::Tensor to = at::ones({rows, 2 * width}, dtype);
    kernels.write(packed.const_data_ptr<float>(), rows, factors.const_data_ptr<float>(), 1, add,
                  model::pack::mutable_columns_of<Stored>(to, 1, width));
    const at::Tensor written = (packed.narrow(1, 0, width) * factors + (add ? 1 : 0)).to(dtype);
    EXPECT_TRUE(at::allclose(to.narrow(1, width, width), written, 1e-6, add ? 1e-2 : 0, true)) << width;
    EXPECT_TRUE(at::equal(to.narrow(1, 0, width), at::ones({rows, width}, dtype))) << width;
  }
}

// Widths with and without remainder, strided rows, and partial blocks.
TYPED_TEST(RowLoops, EqualOnEveryInstructionSet) {
  namespace pack = model::pack;
  constexpr int64_t kRows = 75;
  const at::ScalarType dtype = c10::CppTypeToScalarType<TypeParam>::value;
  for (const int64_t width : {16, 64, 6, 41}) {
    const int64_t wide = pack::padded(width);
    at::manual_seed(width);
    const at::Tensor whole = at::randn({kRows, 2 * width + 3}).to(dtype), x = whole.narrow(1, width, width);
    whole[1][width + 2] = std::numeric_limits<float>::quiet_NaN();
    whole[2][width + 1] = std::numeric_limits<float>::infinity();
    const at::Tensor numbers = x.to(at::kFloat), blank = at::zeros({kRows, wide - width});
    const at::Tensor want = at::cat({numbers * 0.3F, blank}, 1);
    for (const auto* kernels : pack::supported_row_kernels<TypeParam>()) {
      const auto from = pack::columns_of<TypeParam>(whole, 1, width);
      const at::Tensor packed = at::full({kRows, wide}, 7.0F);
      kernels->pack(from, kRows, 0.3F, packed.mutable_data_ptr<float>());
      EXPECT_TRUE(at::allclose(packed, want, 0, 0, true)) << width;

      const at::Tensor columns = at::full({2, width, model::kBlockKeys}, 7.0F);
      kernels->pack_by_column(from, kRows, 1.0F, columns.mutable_data_ptr<float>());
      const at::Tensor turned = columns.transpose(1, 2).reshape({-1, width});
      EXPECT_TRUE(at::allclose(turned.narrow(0, 0, kRows), numbers, 0, 0, true)) << width;
      EXPECT_TRUE(at::equal(turned.narrow(0, kRows, 5), at::zeros({5, width}))) << width;
      EXPECT_TRUE(at::equal(turned.narrow(0, 80, 48), at::full({48, width}, 7.0F))) << width;

      const at::Tensor sums = at::empty({kRows}), b = at::cat({at::randn({kRows, width}), blank + 9}, 1);
      kernels->dot(from, kRows, b.const_data_ptr<float>(), wide, sums.mutable_data_ptr<float>());
      EXPECT_TRUE(at::allclose(sums, (numbers * b.narrow(1, 0, width)).sum(1), 1e-5, 1e-4, true)) << width;

      expect_written(*kernels, packed, width);
    }
  }
}

}  // namespace
}  // namespace heddle
