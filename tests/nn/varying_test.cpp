// Variable-length attention calls (cu_seqlens), as on GPUs, here around a CPU kernel. The result equals the
// blocked kernel under every mask, whole and in parts.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>

#include "heddle/nn/attention_layout.h"
#include "lib/nn/attention/attend_composite.h"

namespace heddle {
namespace {

using model::VaryingLengths;

// Returns the key ranges of flash attention: the last query of a sequence sees its last key.
at::Tensor ranges_of(const VaryingLengths& of) {
  const int32_t* const q = of.cum_q.const_data_ptr<int32_t>();
  const int32_t* const k = of.cum_k.const_data_ptr<int32_t>();
  std::vector<int32_t> out;
  for (int64_t piece = 0; piece + 1 < of.cum_q.numel(); ++piece)
    for (int32_t row = q[piece]; row < q[piece + 1]; ++row) {
      const int32_t end = of.causal ? k[piece + 1] - (q[piece + 1] - 1 - row) : k[piece + 1];
      const auto window = static_cast<int32_t>(of.window);
      out.push_back(window > 0 ? std::max(k[piece], end - window) : k[piece]);
      out.push_back(end);
    }
  return at::tensor(out, at::kInt).view({-1, 2});
}

at::Tensor flat(const at::Tensor& x) {
  return x.reshape({x.size(0), -1}).contiguous();
}

model::BlockedInputs inputs_of(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const VaryingLengths& of) {
  return {flat(q), flat(k), flat(v), ranges_of(of)};
}

std::pair<at::Tensor, at::Tensor> cpu_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                              const VaryingLengths& of, double scale) {
  const at::Tensor out = at::empty_like(flat(q)), sums = at::empty({q.size(1), q.size(0)});
  model::attend_blocked_cpu(inputs_of(q, k, v, of), {q.size(2), v.size(2), scale, 0}, out, sums);
  return {out.view_as(q), sums};
}

std::array<at::Tensor, 3> cpu_backward(const at::Tensor& d_out, const at::Tensor& q, const at::Tensor& k,
                                       const at::Tensor& v, const at::Tensor& out, const at::Tensor& log_sums,
                                       const VaryingLengths& of, double scale) {
  const model::BlockedGradients into{at::empty_like(flat(q)), at::empty_like(flat(k)),
                                     at::empty_like(flat(v))};
  model::attend_blocked_backward_cpu(inputs_of(q, k, v, of), {q.size(2), v.size(2), scale, 0}, flat(d_out),
                                     flat(out), log_sums, into);
  return {into.q.view_as(q), into.k.view_as(k), into.v.view_as(v)};
}

constexpr model::VaryingKernel kOnCpu{cpu_forward, cpu_backward};

struct Result {
  at::Tensor out, sums, q, k, v;
};

void expect_same(const Result& got, const Result& want, const std::string& what) {
  EXPECT_TRUE(at::allclose(got.out, want.out, 1e-5, 1e-5)) << what;
  EXPECT_TRUE(at::allclose(got.sums, want.sums, 1e-5, 1e-5)) << what;
  EXPECT_TRUE(at::allclose(got.q, want.q, 1e-4, 1e-5)) << what;
  EXPECT_TRUE(at::allclose(got.k, want.k, 1e-4, 1e-5)) << what;
  EXPECT_TRUE(at::allclose(got.v, want.v, 1e-4, 1e-5)) << what;
}

class Varying : public ::testing::Test {
 protected:
  static constexpr int64_t kTokens = 150, kDim = 8;
  const model::BlockedShape shape_{kDim, kDim, 0.4, 0};
  const at::Tensor q_ = at::randn({kTokens, 4 * kDim}), d_out_ = at::randn({kTokens, 4 * kDim});
  const at::Tensor k_ = at::randn({kTokens, 2 * kDim}), v_ = at::randn({kTokens, 2 * kDim});

  Result empty() const {
    return {at::full_like(q_, 7), at::full({4, kTokens}, 7.0), at::zeros_like(q_), at::zeros_like(k_),
            at::zeros_like(v_)};
  }
  model::BlockedInputs part(const at::Tensor& seen, int64_t first, int64_t count) const {
    return {q_, k_.narrow(0, first, count), v_.narrow(0, first, count),
            seen.sub(first).clamp(0, count).to(at::kInt).contiguous()};
  }
  Result blocked(const at::Tensor& seen) const {
    Result all = empty();
    model::attend_blocked_cpu({q_, k_, v_, seen}, shape_, all.out, all.sums);
    model::attend_blocked_backward_cpu({q_, k_, v_, seen}, shape_, d_out_, all.out, all.sums,
                                       {all.q, all.k, all.v});
    return all;
  }
  // Attends to keys in parts, as the context parallelism methods do.
  Result varying(const at::Tensor& seen, const std::vector<int64_t>& cuts) const {
    Result all = empty();
    const bool parts = cuts.size() > 2;
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      const model::BlockedInputs in = part(seen, cuts[i], cuts[i + 1] - cuts[i]);
      model::attend_varying(in, model::device_calls(in.seen, in.k.size(0), in.q), shape_, all.out, all.sums,
                            i > 0, kOnCpu);
    }
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      const int64_t first = cuts[i], count = cuts[i + 1] - first;
      const model::BlockedInputs in = part(seen, first, count);
      model::attend_varying_backward(
          in, model::device_calls(in.seen, count, in.q), shape_, d_out_, all.out, all.sums,
          {all.q, all.k.narrow(0, first, count), all.v.narrow(0, first, count)}, parts, kOnCpu);
    }
    return all;
  }
  at::Tensor seen_by(bool causal, int64_t window, const std::vector<int>& documents) const {
    return model::visible_keys({1, kTokens, kDim, {causal, window}, {}}, at::tensor(documents, at::kInt));
  }
};

TEST_F(Varying, EqualsTheBlockedKernelUnderEveryMask) {
  for (const std::vector<int>& documents : {std::vector<int>{0, 150}, {0, 1, 2, 40, 99, 100, 150}})
    for (const bool causal : {true, false})
      for (const int64_t window : {0, 1, 7}) {
        const at::Tensor seen = seen_by(causal, window, documents);
        const std::string what =
            std::to_string(documents.size()) + (causal ? " causal " : " full ") + std::to_string(window);
        expect_same(varying(seen, {0, kTokens}), blocked(seen), what);
        expect_same(varying(seen, {0, 35, 99, 120, kTokens}), blocked(seen), what + ", by parts");
      }
}

// Two chunks of a document on a context parallel rank. The second chunk sees the keys of the first.
TEST_F(Varying, EqualsTheBlockedKernelWhereRangesOverlapAndQueriesSeeNothing) {
  at::Tensor seen = at::zeros({kTokens, 2}, at::kInt);
  for (int token = 0; token < 60; ++token) seen[token][1] = token + 1;
  for (int token = 60; token < 120; ++token) seen[token][1] = token + 21;
  expect_same(varying(seen, {0, kTokens}), blocked(seen), "two chunks");
  at::Tensor mixed = std::get<0>(at::randint(0, kTokens, {kTokens, 2}, at::kInt).sort(1)).contiguous();
  expect_same(varying(mixed, {0, kTokens}), blocked(mixed), "any ranges");
}

// Attention by matrix products, the fallback for soft caps, values of another width, and dtypes that a
// device's kernels do not support.
TEST(Composite, EqualsTheBlockedKernelUnderEveryMask) {
  constexpr int64_t kTokens = 150;
  const at::Tensor q = at::randn({kTokens, 4 * 6}), k = at::randn({kTokens, 2 * 6}),
                   v = at::randn({kTokens, 2 * 5}), d_out = at::randn({kTokens, 4 * 5});
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16})
    for (const double soft_cap : {0.0, 1.5})
      for (const int64_t window : {0, 7}) {
        const model::Heads heads{1, kTokens, 6, {true, window}, {}};
        const at::Tensor seen = model::visible_keys(heads, at::tensor({0, 1, 2, 40, 99, 100, 150}, at::kInt));
        const model::BlockedShape shape{6, 5, 0.4, soft_cap};
        const auto computed = [&](bool by_products, const std::vector<int64_t>& cuts) {
          const auto as = [&](const at::Tensor& x) { return x.to(dtype); };
          const at::ScalarType wide = dtype == at::kDouble ? at::kDouble : at::kFloat;
          Result all{at::full({kTokens, 20}, 7, wide), at::full({4, kTokens}, 7, wide),
                     at::zeros({kTokens, 24}, wide), at::zeros({kTokens, 12}, wide),
                     at::zeros({kTokens, 10}, wide)};
          for (const bool forward : {true, false})
            for (size_t i = 0; i + 1 < cuts.size(); ++i) {
              const int64_t first = cuts[i], count = cuts[i + 1] - first;
              const model::BlockedInputs in{as(q), as(k).narrow(0, first, count),
                                            as(v).narrow(0, first, count),
                                            seen.sub(first).clamp(0, count).to(at::kInt).contiguous()};
              const model::BlockedGradients into{all.q, all.k.narrow(0, first, count),
                                                 all.v.narrow(0, first, count)};
              const model::DeviceRanges ranges = model::device_ranges(in.seen, count, in.q, shape);
              const bool add = cuts.size() > 2;
              if (forward && by_products)
                model::attend_composite(in, ranges, shape, all.out, all.sums, i > 0);
              else if (forward)
                model::attend_blocked_cpu(in, shape, all.out, all.sums, i > 0);
              else if (by_products)
                model::attend_composite_backward(in, ranges, shape, as(d_out), all.out, all.sums, into, add);
              else
                model::attend_blocked_backward_cpu(in, shape, as(d_out), all.out, all.sums, into, add);
            }
          return all;
        };
        const std::string what = std::string(c10::toString(dtype)) + " cap " + std::to_string(soft_cap) +
                                 " window " + std::to_string(window);
        for (const std::vector<int64_t>& cuts : {std::vector<int64_t>{0, kTokens}, {0, 35, 99, 120, kTokens}})
          if (dtype != at::kBFloat16) expect_same(computed(true, cuts), computed(false, cuts), what);
        const Result narrow = computed(true, {0, kTokens}), exact = computed(false, {0, kTokens});
        EXPECT_LT((narrow.q - exact.q).abs().max().item<double>(), 0.1) << what;
      }
}

// The whole sequence is in one call, even if a document is longer than the window.
TEST(VaryingCalls, AreOneInAWindow) {
  for (const bool documents : {true, false}) {
    const model::Heads heads{1, 20, 8, {true, 4}, {}};
    const auto calls = model::varying_calls(
        model::visible_keys(heads, documents ? at::tensor({0, 3, 13, 20}, at::kInt) : at::Tensor()));
    ASSERT_EQ(calls.size(), 1u);
    EXPECT_EQ(calls[0].window, 4);
    EXPECT_EQ(calls[0].cum_q, (documents ? std::vector<int32_t>{0, 3, 13, 20} : std::vector<int32_t>{0, 20}));
  }
}

TEST(VaryingCalls, ArePiecesWithDisjointKeys) {
  const model::Heads heads{1, 10, 8, {}, {}};
  const auto calls = model::varying_calls(model::visible_keys(heads, at::tensor({0, 4, 10}, at::kInt)));
  ASSERT_EQ(calls.size(), 1u);  // all documents in one call
  EXPECT_TRUE(calls[0].causal);
  EXPECT_EQ(calls[0].window, 0);
  EXPECT_EQ(calls[0].cum_q, (std::vector<int32_t>{0, 4, 10}));
  EXPECT_EQ(calls[0].cum_k, calls[0].cum_q);
  EXPECT_EQ(calls[0].max_q, 6);
}

}  // namespace
}  // namespace heddle
