// Blocked attention: separate documents, ranges in any order, and attention over parts of the keys.
#include "heddle/nn/attention_core.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "heddle/nn/attention_layout.h"

namespace heddle {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct AttentionCase {
  std::string name;
  int64_t batch, sequence, head_dim;
  AttentionOptions options;
  std::vector<int> documents;  // empty: no documents
  int64_t queries_of_key = 1;
  bool sinks = false;

  model::Heads heads() const { return {batch, sequence, head_dim, options, {}}; }
  int64_t tokens() const { return batch * sequence; }
};

AttentionOptions with(bool causal, int64_t window = 0, double cap = 0, int64_t value_dim = 0) {
  return {causal, window, 0, cap, value_dim};
}

at::Tensor documents_of(const std::vector<int>& offsets) {
  return offsets.empty() ? at::Tensor() : at::tensor(offsets, at::kInt);
}

struct AttentionInputs {
  at::Tensor q, k, v, sinks, d_out;
};

AttentionInputs inputs_of(const AttentionCase& one, at::ScalarType dtype) {
  at::manual_seed(11);
  constexpr int64_t kKeyHeads = 2;
  const int64_t tokens = one.tokens(), count = kKeyHeads * one.queries_of_key;
  const auto leaf = [&](at::IntArrayRef shape) {
    return at::randn(shape, at::kDouble).to(dtype).set_requires_grad(true);
  };
  return {leaf({tokens, count * one.head_dim}), leaf({tokens, kKeyHeads * one.head_dim}),
          leaf({tokens, kKeyHeads * one.heads().value_dim()}), one.sinks ? leaf({count}) : at::Tensor(),
          at::randn({tokens, count * one.heads().value_dim()}, at::kDouble).to(dtype)};
}

void expect_near(const at::Tensor& got, const at::Tensor& want, double tolerance, const std::string& what) {
  ASSERT_EQ(got.sizes(), want.sizes()) << what;
  const double size = std::max(1.0, want.to(at::kDouble).abs().max().item<double>());
  const double away = (got.to(at::kDouble) - want.to(at::kDouble)).abs().max().item<double>();
  EXPECT_LE(away, tolerance * size) << what;
}

// The changed document also holds infinities.
TEST(Attention, KeepsTheBitsOfADocumentWhenAnotherChanges) {
  const AttentionCase one{"", 1, 150, 10, with(true), {0, 35, 99, 150}, 2};
  const auto results = [&](double change) {
    AttentionInputs in = inputs_of(one, at::kFloat);
    c10::NoGradGuard no_grad;
    for (at::Tensor* x : {&in.q, &in.k, &in.v}) x->narrow(0, 35, 64).mul_(change);
    c10::AutoGradMode grad(true);
    const at::Tensor y = model::attend(in.q, in.k, in.v, one.heads(), documents_of(one.documents));
    y.backward(in.d_out);
    return std::vector<at::Tensor>{y.detach(), in.q.grad(), in.k.grad(), in.v.grad()};
  };
  const auto before = results(1), after = results(3);
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_TRUE(at::equal(before[i].narrow(0, 0, 35), after[i].narrow(0, 0, 35))) << i;
    EXPECT_TRUE(at::equal(before[i].narrow(0, 99, 51), after[i].narrow(0, 99, 51))) << i;
    EXPECT_FALSE(at::equal(before[i].narrow(0, 35, 64), after[i].narrow(0, 35, 64))) << i;
  }
  EXPECT_TRUE(at::equal(before[0].narrow(0, 0, 35), results(kInfinity)[0].narrow(0, 0, 35)));
}

TEST(Attention, PackedDocumentsHaveTheBitsOfEachAlone) {
  const AttentionCase one{"", 1, 400, 10, with(true), {0, 1, 36, 99, 310, 400}, 2};
  const AttentionInputs in = inputs_of(one, at::kFloat);
  const at::Tensor y = model::attend(in.q, in.k, in.v, one.heads(), documents_of(one.documents));
  y.backward(in.d_out);
  for (size_t i = 0; i + 1 < one.documents.size(); ++i) {
    const int64_t first = one.documents[i], count = one.documents[i + 1] - first;
    const auto part = [&](const at::Tensor& x) {
      return x.detach().narrow(0, first, count).clone().set_requires_grad(true);
    };
    AttentionInputs alone{part(in.q), part(in.k), part(in.v), {}, in.d_out.narrow(0, first, count)};
    const at::Tensor own = model::attend(alone.q, alone.k, alone.v, {1, count, 10, one.options, {}}, {});
    own.backward(alone.d_out);
    EXPECT_TRUE(at::equal(own, y.narrow(0, first, count))) << i;
    EXPECT_TRUE(at::equal(alone.q.grad(), in.q.grad().narrow(0, first, count))) << i;
    EXPECT_TRUE(at::equal(alone.k.grad(), in.k.grad().narrow(0, first, count))) << i;
    EXPECT_TRUE(at::equal(alone.v.grad(), in.v.grad().narrow(0, first, count))) << i;
  }
}

// Checks ranges in descending order, keys that no query sees, and queries that see no key.
void expect_ranges_in_any_order(int64_t dim) {
  constexpr int64_t kQueries = 207, kKeys = 190;
  at::manual_seed(3);
  const at::Tensor q = at::randn({kQueries, dim}), k = at::randn({kKeys, dim}), v = at::randn({kKeys, dim});
  const at::Tensor d_out = at::randn({kQueries, dim});
  at::Tensor seen = std::get<0>(at::randint(0, 90, {kQueries, 2}, at::kInt).sort(1)).contiguous();
  seen.narrow(0, 100, kQueries - 100).add_(95);  // no query sees keys 90 to 94
  seen.narrow(0, 40, 14).zero_();                // whole tiles see no key
  const at::Tensor place = at::arange(kKeys);
  const at::Tensor blind = (place < seen.narrow(1, 0, 1)).logical_or(place >= seen.narrow(1, 1, 1));
  const at::Tensor scores =
      (q.matmul(k.t()) / std::sqrt(static_cast<double>(dim))).masked_fill(blind, -kInfinity);
  const at::Tensor weights = at::nan_to_num(scores.softmax(1));
  const at::Tensor d_scores = weights * (d_out.matmul(v.t()) - (d_out * weights.matmul(v)).sum(1, true)) /
                              std::sqrt(static_cast<double>(dim));
  const at::Tensor out = at::full({kQueries, dim}, NAN), sums = at::full({1, kQueries}, NAN);
  const model::BlockedGradients got{at::full_like(q, NAN), at::full_like(k, NAN), at::full_like(v, NAN)};
  const model::BlockedShape shape = model::blocked_shape({1, kQueries, dim, {}, {}});
  model::attend_blocked_cpu({q, k, v, seen}, shape, out, sums);
  model::attend_blocked_backward_cpu({q, k, v, seen}, shape, d_out, out, sums, got);
  expect_near(out, weights.matmul(v), 1e-5, "out");
  expect_near(got.q, d_scores.matmul(k), 1e-5, "q");
  expect_near(got.k, d_scores.t().matmul(q), 1e-5, "k");
  expect_near(got.v, weights.t().matmul(d_out), 1e-5, "v");
}

TEST(Attention, TakesRangesInAnyOrder) {
  expect_ranges_in_any_order(12);
  expect_ranges_in_any_order(16);  // rows are used in place
}

// The keys are split in two parts. Some queries see no key of the first part.
TEST(Attention, JoinsPartsOfTheKeys) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const AttentionCase one{"", 1, 131, 12, with(true), {0, 60, 131}, 2};
    const AttentionInputs in = inputs_of(one, dtype);
    c10::NoGradGuard no_grad;
    const at::Tensor seen = model::visible_keys(one.heads(), documents_of(one.documents));
    const model::BlockedShape shape = model::blocked_shape(one.heads());
    const at::TensorOptions wide = at::TensorOptions().dtype(at::kFloat);
    const at::Tensor whole = at::empty({131, 48}, wide), whole_sums = at::empty({4, 131}, wide);
    model::attend_blocked_cpu({in.q, in.k, in.v, seen}, shape, whole, whole_sums);
    const model::BlockedGradients want{at::zeros({131, 48}, wide), at::zeros({131, 24}, wide),
                                       at::zeros({131, 24}, wide)};
    model::attend_blocked_backward_cpu({in.q, in.k, in.v, seen}, shape, in.d_out, whole, whole_sums, want);
    const at::Tensor out = at::empty({131, 48}, wide), sums = at::empty({4, 131}, wide);
    const model::BlockedGradients got{at::zeros({131, 48}, wide), at::zeros({131, 24}, wide),
                                      at::zeros({131, 24}, wide)};
    const auto part = [&](int64_t first, int64_t count) {
      return model::BlockedInputs{in.q, in.k.narrow(0, first, count), in.v.narrow(0, first, count),
                                  seen.sub(first).clamp(0, count).to(at::kInt).contiguous()};
    };
    model::attend_blocked_cpu(part(70, 61), shape, out, sums);
    model::attend_blocked_cpu(part(0, 70), shape, out, sums, true);
    expect_near(out, whole, 1e-6, "out");
    expect_near(sums, whole_sums, 1e-6, "log-sums");
    for (const auto& [first, count] : {std::pair<int64_t, int64_t>{70, 61}, {0, 70}})
      model::attend_blocked_backward_cpu(
          part(first, count), shape, in.d_out, whole, whole_sums,
          {got.q, got.k.narrow(0, first, count), got.v.narrow(0, first, count)}, true);
    expect_near(got.q, want.q, 1e-5, "q");
    expect_near(got.k, want.k, 1e-5, "k");
    expect_near(got.v, want.v, 1e-5, "v");
  }
}

}  // namespace
}  // namespace heddle
