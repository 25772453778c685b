// Attention by blocks: equal to the whole matrix of scores under every mask, and by parts.
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
  std::vector<int> documents;  // empty: none
  int64_t queries_of_key = 1;
  bool sinks = false;

  model::Heads heads() const { return {batch, sequence, head_dim, options, {}}; }
  int64_t tokens() const { return batch * sequence; }
};

AttentionOptions with(bool causal, int64_t window = 0, double cap = 0, int64_t value_dim = 0) {
  return {causal, window, 0, cap, value_dim};
}

const std::vector<AttentionCase> kCases = {
    {"causal", 2, 71, 6, with(true), {}, 2},
    {"full", 2, 71, 6, with(false), {}, 2},
    {"long", 1, 331, 20, with(true), {}, 1},
    {"longer than a tile sees at once", 1, 613, 20, with(true), {}, 1},
    {"documents", 2, 101, 16, with(true), {0, 1, 7, 70, 101, 164, 165, 202}, 3},
    {"full documents", 1, 150, 17, with(false), {0, 60, 61, 149, 150}, 1},
    {"window", 1, 203, 8, with(true, 37), {}, 2},
    {"as many as a tile sees at once", 1, 512, 16, with(false), {}, 1},
    {"wide window", 1, 643, 16, with(true, 400), {}, 2},  // 466 keys of the last block, 515 from a whole
                                                          // block
    {"long window", 1, 643, 16, with(true, 37), {}, 2},
    {"full window", 1, 203, 8, with(false, 5), {0, 90, 203}, 2},
    {"soft cap", 1, 97, 33, with(true, 0, 1.5), {0, 40, 97}, 1},
    {"values of another width", 2, 83, 24, with(true, 0, 0, 11), {}, 2},
    {"sinks", 2, 83, 12, with(true, 19), {0, 50, 83, 166}, 2, true},
};

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

// True where a token sees another.
at::Tensor sight_of(const AttentionCase& one) {
  const int64_t tokens = one.tokens();
  at::Tensor document = at::arange(tokens).div(one.sequence, "floor");
  for (const int begin : one.documents) document += (at::arange(tokens) >= begin).to(at::kLong);
  const at::Tensor away = at::arange(tokens).unsqueeze(1) - at::arange(tokens);
  at::Tensor seen = document.unsqueeze(1) == document;
  if (one.options.causal) seen = seen.logical_and(away >= 0);
  if (one.options.window > 0) seen = seen.logical_and(away.abs() < one.options.window);
  return seen;
}

// In fp64, with the whole matrix of scores.
at::Tensor plainly(const AttentionCase& one, const AttentionInputs& in) {
  const int64_t tokens = in.q.size(0);
  const auto split = [&](const at::Tensor& x, int64_t dim, int64_t repeats) {
    return x.to(at::kDouble).view({tokens, -1, dim}).transpose(0, 1).repeat_interleave(repeats, 0);
  };
  const at::Tensor q = split(in.q, one.head_dim, 1);
  const at::Tensor k = split(in.k, one.head_dim, one.queries_of_key);
  const at::Tensor v = split(in.v, one.heads().value_dim(), one.queries_of_key);
  at::Tensor scores = q.matmul(k.transpose(1, 2)) / std::sqrt(static_cast<double>(one.head_dim));
  if (const double cap = one.options.soft_cap; cap > 0) scores = (scores / cap).tanh() * cap;
  scores = scores.masked_fill(sight_of(one).logical_not(), -kInfinity);
  if (one.sinks)
    scores = at::cat({scores, in.sinks.to(at::kDouble).view({-1, 1, 1}).expand({-1, tokens, 1})}, 2);
  return scores.softmax(2).narrow(2, 0, tokens).matmul(v).transpose(0, 1).reshape(in.d_out.sizes());
}

void expect_near(const at::Tensor& got, const at::Tensor& want, double tolerance, const std::string& what) {
  ASSERT_EQ(got.sizes(), want.sizes()) << what;
  const double size = std::max(1.0, want.to(at::kDouble).abs().max().item<double>());
  const double away = (got.to(at::kDouble) - want.to(at::kDouble)).abs().max().item<double>();
  EXPECT_LE(away, tolerance * size) << what;
}

class AttentionIn : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  double tolerance() const {
    return GetParam() == at::kDouble ? 1e-12 : GetParam() == at::kFloat ? 1e-5 : 2e-2;
  }
};

TEST_P(AttentionIn, EqualsTheWholeMatrixOfScores) {
  for (const AttentionCase& one : kCases) {
    AttentionInputs ours = inputs_of(one, GetParam()), want = inputs_of(one, GetParam());
    model::Heads heads = one.heads();
    heads.sinks = ours.sinks;
    const at::Tensor y = model::attend(ours.q, ours.k, ours.v, heads, documents_of(one.documents));
    const at::Tensor z = plainly(one, want);
    expect_near(y, z, tolerance(), one.name);
    y.backward(ours.d_out);
    z.backward(want.d_out.to(at::kDouble));
    expect_near(ours.q.grad(), want.q.grad(), tolerance(), one.name + ", q");
    expect_near(ours.k.grad(), want.k.grad(), tolerance(), one.name + ", k");
    expect_near(ours.v.grad(), want.v.grad(), tolerance(), one.name + ", v");
    if (one.sinks) expect_near(ours.sinks.grad(), want.sinks.grad(), tolerance(), one.name + ", sinks");
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, AttentionIn,
                         ::testing::Values(at::kDouble, at::kFloat, at::kBFloat16, at::kHalf),
                         [](const auto& info) { return std::string(c10::toString(info.param)); });

// Also where the changed document holds infinities.
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

// Ranges that do not ascend, keys that no query sees, and queries that see nothing.
void expect_ranges_in_any_order(int64_t dim) {
  constexpr int64_t kQueries = 207, kKeys = 190;
  at::manual_seed(3);
  const at::Tensor q = at::randn({kQueries, dim}), k = at::randn({kKeys, dim}), v = at::randn({kKeys, dim});
  const at::Tensor d_out = at::randn({kQueries, dim});
  at::Tensor seen = std::get<0>(at::randint(0, 90, {kQueries, 2}, at::kInt).sort(1)).contiguous();
  seen.narrow(0, 100, kQueries - 100).add_(95);  // no query sees keys 90 to 94
  seen.narrow(0, 40, 14).zero_();                // whole tiles that see nothing
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
  expect_ranges_in_any_order(16);  // rows in place
}

// Keys in two parts, the first of which some queries do not see at all.
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
