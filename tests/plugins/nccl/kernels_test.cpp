// GPU kernels, run by a grid emulator, compared with float64: both dtypes, 16 bytes at a time and single
// elements.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>

#include "heddle/nn/experts.h"
#include "plugins/nccl/grid_emulator.h"

namespace heddle::tests::emulator {

#include "../plugins/nccl/cuda/kernels/kernels.cu"

namespace {

constexpr double kOfFloat = 2e-6, kOfBf16 = 8e-3;

// Variant of a kernel under test.
struct KernelVariant {
  bool narrow, wide;
  std::string name() const {
    return std::string(narrow ? "bfloat16" : "float") + (wide ? " wide" : " single");
  }
  at::ScalarType dtype() const { return narrow ? at::kBFloat16 : at::kFloat; }
  double tolerance() const { return narrow ? kOfBf16 : kOfFloat; }
  // Width of a row. With 16 bytes at a time it is a multiple of a pack.
  int64_t width(int64_t about) const { return wide ? about / 8 * 8 : about; }
};

class Kernels : public ::testing::TestWithParam<KernelVariant> {
 protected:
  at::Tensor random(at::IntArrayRef shape) const { return at::randn(shape).to(GetParam().dtype()); }
  void expect_near(const at::Tensor& got, const at::Tensor& want, const std::string& what) const {
    const at::Tensor exact = want.to(at::kDouble);
    const double scale = std::max(1.0, exact.abs().max().item<double>());
    EXPECT_LT((got.to(at::kDouble) - exact).abs().max().item<double>(), GetParam().tolerance() * scale)
        << GetParam().name() << " " << what;
  }
};

template <class T>
T* data(const at::Tensor& x) {
  return static_cast<T*>(x.mutable_data_ptr());
}

// Calls the variant's kernel with pointers of its type.
#define HEDDLE_CALL(kernel, blocks, ...)                                                      \
  do {                                                                                        \
    const KernelVariant variant = GetParam();                                                 \
    if (variant.narrow) {                                                                     \
      using T = Bf16;                                                                         \
      Grid::run(blocks, [&] {                                                                 \
        variant.wide ? kernel##_bf16_wide(__VA_ARGS__) : kernel##_bf16_single(__VA_ARGS__);   \
      });                                                                                     \
    } else {                                                                                  \
      using T = float;                                                                        \
      Grid::run(blocks, [&] {                                                                 \
        variant.wide ? kernel##_float_wide(__VA_ARGS__) : kernel##_float_single(__VA_ARGS__); \
      });                                                                                     \
    }                                                                                         \
  } while (false)

TEST_P(Kernels, RmsNorm) {
  for (const double plus : {0.0, 1.0})
    for (const int64_t about : {9, 130, 2500}) {
      const int64_t rows = 5, width = GetParam().width(about);
      const at::Tensor x = random({rows, width}), weight = random({width}), dy = random({rows, width});
      const at::Tensor y = at::empty_like(x), roots = at::empty({rows, 1}), dx = at::empty_like(x),
                       sums = at::empty({3, width});
      const at::Tensor exact = x.to(at::kDouble).requires_grad_(),
                       factor = weight.to(at::kDouble).requires_grad_();
      const at::Tensor want = exact * (exact * exact).mean(-1, true).add(1e-5).rsqrt() * (factor + plus);
      want.backward(dy.to(at::kDouble));
      HEDDLE_CALL(rms_norm, rows, data<T>(x), data<T>(weight), data<T>(y), data<float>(roots), width, 1e-5,
                  plus);
      HEDDLE_CALL(rms_norm_backward, 3, data<T>(dy), data<T>(x), data<T>(weight), data<float>(roots),
                  data<T>(dx), data<float>(sums), rows, width, plus);
      expect_near(y, want, "y");
      expect_near(dx, exact.grad(), "dx");
      expect_near(sums.sum(0), factor.grad(), "dw");
    }
}

TEST_P(Kernels, Swiglu) {
  for (const int64_t about : {8, 77}) {
    const int64_t rows = 7, width = GetParam().width(about);
    const at::Tensor both = random({rows, 2 * width}), dy = random({rows, width});
    const at::Tensor gate = both.narrow(1, 0, width), up = both.narrow(1, width, width);
    const at::Tensor y = at::empty_like(dy), d_both = at::empty_like(both);
    const at::Tensor g = gate.to(at::kDouble).requires_grad_(), u = up.to(at::kDouble).requires_grad_();
    const at::Tensor want = at::silu(g) * u;
    want.backward(dy.to(at::kDouble));
    HEDDLE_CALL(swiglu, 2, data<T>(gate), data<T>(up), data<T>(y), rows, width, 2 * width, 2 * width);
    HEDDLE_CALL(swiglu_backward, 2, data<T>(dy), data<T>(gate), data<T>(up), data<T>(d_both), rows, width,
                width, 2 * width, 2 * width);
    expect_near(y, want, "y");
    expect_near(d_both, at::cat({g.grad(), u.grad()}, 1), "gradients");
  }
}

// Rows of several blocks, compared with the layer's formula in float64.
TEST_P(Kernels, ActivateExpertsWithEveryKind) {
  using Kind = model::ExpertActivation::Kind;
  for (const Kind kind : {Kind::swiglu, Kind::limited_swiglu, Kind::clamped_swiglu, Kind::geglu,
                          Kind::geglu_tanh, Kind::relu2, Kind::situ})
    for (const bool interleaved : {false, true})
      for (const int64_t about : {9, 300}) {
        model::ExpertActivation how{.kind = kind, .limit = 2, .interleaved = interleaved};
        how.situ = {1.5, interleaved ? 0.0 : 0.7};
        const bool is_situ = kind == Kind::situ, alternates = interleaved && kind != Kind::relu2;
        const float factor = static_cast<float>(is_situ ? how.situ.beta : how.alpha),
                    limit = static_cast<float>(is_situ ? how.situ.bound : how.limit);
        const int64_t rows = 19, width = GetParam().width(about);
        const at::Tensor hidden = random({rows, how.columns() * width}) * 2, dy = random({rows, width});
        const at::Tensor weights = at::rand({rows}), y = at::empty_like(dy), again = at::empty_like(dy),
                         d_hidden = at::empty_like(hidden), d_weights = at::empty({rows});
        const auto exact = model::activate_backward(how, dy.to(at::kDouble), hidden.to(at::kDouble),
                                                    weights.to(at::kDouble));
        HEDDLE_CALL(expert_activation, 2, data<T>(hidden), data<float>(weights), data<T>(y), rows, width,
                    static_cast<int>(kind), factor, limit, 1.0F, alternates);
        HEDDLE_CALL(expert_activation_backward, 2, data<T>(dy), data<T>(hidden), data<float>(weights),
                    data<T>(d_hidden), data<float>(d_weights), data<T>(again), rows, width,
                    static_cast<int>(kind), factor, limit, 1.0F, alternates);
        const std::string name = "kind " + std::to_string(static_cast<int>(kind));
        expect_near(y, exact.y, name + ": y");
        EXPECT_TRUE(at::equal(again, y)) << name;
        expect_near(d_hidden, exact.hidden, name + ": d_hidden");
        expect_near(d_weights, exact.weights, name + ": d_weights");
      }
}

TEST_P(Kernels, ActivateExpertsKeepNaN) {
  const int64_t width = GetParam().width(16);
  const at::Tensor hidden = random({3, 2 * width}), weights = at::ones({3}),
                   y = at::empty_like(random({3, width}));
  hidden[1][2] = std::nan("");
  for (const int kind : {kSwiglu, kLimitedSwiglu, kClampedSwiglu, kGeglu, kGegluTanh, kSitu}) {
    HEDDLE_CALL(expert_activation, 1, data<T>(hidden), data<float>(weights), data<T>(y), 3, width, kind, 1.7F,
                7.0F, 1.0F, 0);
    EXPECT_TRUE(y[1][2].isnan().item<bool>()) << kind;
    EXPECT_EQ(y.isnan().sum().item<int64_t>(), 1) << kind;
  }
}

TEST_P(Kernels, CombineRowsOfTokensWithMissingRows) {
  for (const int64_t about : {9, 700}) {
    const int64_t tokens = 6, k = 3, width = GetParam().width(about);
    const at::Tensor rows = random({11, width}), out = at::empty_like(random({tokens, width}));
    const at::Tensor places = at::randint(-1, 11, {tokens, k}, at::kLong);
    places[4].fill_(-1);
    HEDDLE_CALL(combine_rows, 2, data<T>(rows), data<i64>(places), data<T>(out), tokens, k, width);
    const at::Tensor padded = at::cat({rows.to(at::kDouble), at::zeros({1, width}, at::kDouble)});
    const at::Tensor found = at::where(places.lt(0), 11, places).view({-1});
    expect_near(out, padded.index_select(0, found).view({tokens, k, width}).sum(1), "sums");
    EXPECT_TRUE(at::equal(out[4], at::zeros_like(out[4])));
  }
}

TEST_P(Kernels, RotateHeadsInStridedRows) {
  const int64_t tokens = 6, heads = 3, half = GetParam().width(11), head = 2 * half + 8, first = 8;
  const at::Tensor rows = random({tokens, heads * head + 16}), turns = at::randn({tokens, half});
  const at::Tensor x = rows.narrow(1, 16, heads * head), before = rows.clone();
  const at::Tensor cos = turns.cos(), sin = turns.sin();
  HEDDLE_CALL(rotate, 2, data<T>(x), data<float>(cos), data<float>(sin), tokens, heads, rows.stride(0), head,
              first, half, 1.0F);
  const at::Tensor given = before.narrow(1, 16, heads * head).to(at::kDouble).view({tokens, heads, head});
  const at::Tensor a = given.narrow(2, first, half), b = given.narrow(2, first + half, half);
  const at::Tensor c = cos.to(at::kDouble).unsqueeze(1), s = sin.to(at::kDouble).unsqueeze(1);
  const at::Tensor want = at::cat({given.narrow(2, 0, first), a * c - b * s, b * c + a * s}, 2);
  expect_near(x.reshape({tokens, heads, head}), want, "turned");
  expect_near(rows.narrow(1, 0, 16), before.narrow(1, 0, 16), "what lies between");
  HEDDLE_CALL(rotate, 2, data<T>(x), data<float>(cos), data<float>(sin), tokens, heads, rows.stride(0), head,
              first, half, -1.0F);
  expect_near(rows, before, "and back");
}

TEST_P(Kernels, RotateNeighboringPairs) {
  const int64_t tokens = 5, heads = 2, half = 7, head = 20, first = 3;
  const at::Tensor x = random({tokens, heads * head}), before = x.clone(), turns = at::randn({tokens, half});
  const at::Tensor cos = turns.cos(), sin = turns.sin();
  Grid::run(2, [&] {
    if (GetParam().narrow)
      rotate_interleaved_bf16(data<Bf16>(x), data<float>(cos), data<float>(sin), tokens, heads, heads * head,
                              head, first, half, 1.0F);
    else
      rotate_interleaved_float(data<float>(x), data<float>(cos), data<float>(sin), tokens, heads,
                               heads * head, head, first, half, 1.0F);
  });
  const at::Tensor want = before.to(at::kDouble).view({tokens, heads, head}).clone();
  const at::Tensor pairs = want.narrow(2, first, 2 * half).unflatten(2, {half, 2});
  const at::Tensor a = pairs.select(3, 0).clone(), b = pairs.select(3, 1).clone();
  const at::Tensor c = cos.to(at::kDouble).unsqueeze(1), s = sin.to(at::kDouble).unsqueeze(1);
  pairs.select(3, 0).copy_(a * c - b * s);
  pairs.select(3, 1).copy_(b * c + a * s);
  expect_near(x.view({tokens, heads, head}), want, "turned");
}

TEST_P(Kernels, TokenLoss) {
  for (const double cap : {0.0, 3.0})
    for (const int64_t about : {9, 1000}) {
      const int64_t rows = 6, vocabulary = GetParam().width(about);
      const at::Tensor logits = random({rows, vocabulary}) * 4, losses = at::empty({rows});
      const at::Tensor labels = at::randint(vocabulary, {rows, 1}, at::kLong), counted = at::ones({rows, 1});
      counted[2] = 0;
      const at::Tensor exact = logits.to(at::kDouble).requires_grad_();
      const at::Tensor capped = cap == 0 ? exact : at::tanh(exact / cap) * cap;
      const at::Tensor want = at::log_softmax(capped, 1).gather(1, labels).neg() * counted;
      want.sum().backward();
      for (const int with_gradient : {0, 1})
        HEDDLE_CALL(token_loss, rows, data<T>(logits), data<i64>(labels), data<float>(counted),
                    data<float>(losses), vocabulary, cap, with_gradient);
      expect_near(losses, want.squeeze(1), "losses");
      expect_near(logits, exact.grad(), "gradients");
    }
}

// Equals the bits of LibTorch's own rounding of the scaled values.
TEST_P(Kernels, RoundFp8) {
  for (const at::ScalarType type : {at::kFloat8_e4m3fn, at::kFloat8_e5m2})
    for (const int64_t rows : {5, 70, 72}) {
      const int64_t columns = GetParam().width(75), parts = 3;
      const at::Tensor x = random({rows, columns}) *
                           at::pow(10, at::randint(-6, 3, {rows, 1}, at::kFloat)).to(GetParam().dtype());
      x[0][0] = 0;
      const at::Tensor most = at::empty({parts}), inverse = at::empty({});
      const at::Tensor value = at::empty({rows, columns}, type), across = at::empty({columns, rows}, type);
      HEDDLE_CALL(largest, parts, data<T>(x), data<float>(most), x.numel());
      EXPECT_EQ(most.max().item<float>(), x.abs().max().to(at::kFloat).item<float>());
      const unsigned tiles =
          static_cast<unsigned>((rows + kTile - 1) / kTile * ((columns + kTile - 1) / kTile));
      const int e5m2 = type == at::kFloat8_e5m2 ? 1 : 0;
      HEDDLE_CALL(round_fp8, tiles, data<T>(x), data<float>(most), parts, data<unsigned char>(value),
                  data<unsigned char>(across), data<float>(inverse), rows, columns, e5m2);
      const float limit = e5m2 != 0 ? 57344.0F : 448.0F, scale = limit / most.max().item<float>();
      EXPECT_EQ(inverse.item<float>(), 1 / scale);
      const at::Tensor want = at::clamp(x.to(at::kFloat) * scale, -limit, limit).to(type);
      EXPECT_TRUE(at::equal(value.view(at::kByte), want.view(at::kByte))) << GetParam().name() << " " << rows;
      EXPECT_TRUE(at::equal(across.view(at::kByte), value.view(at::kByte).t().contiguous()));
    }
}

// A row with NaN logits has a NaN loss, and does not affect other rows.
TEST_P(Kernels, TokenLossOfRowsThatAreNotFinite) {
  const at::Tensor logits = random({3, 16}), losses = at::empty({3}), counted = at::ones({3, 1});
  logits[1][4] = std::nan("");
  const at::Tensor labels = at::zeros({3, 1}, at::kLong);
  HEDDLE_CALL(token_loss, 3, data<T>(logits), data<i64>(labels), data<float>(counted), data<float>(losses),
              16, 0.0F, 1);
  EXPECT_TRUE(losses[1].isnan().item<bool>());
  EXPECT_TRUE(logits[1].isnan().all().item<bool>());
  EXPECT_TRUE(losses[0].isfinite().item<bool>() && losses[2].isfinite().item<bool>());
}

// A label outside the vocabulary shows in the loss, and no memory outside the row is read.
TEST_P(Kernels, TokenLossOfALabelOutsideTheVocabulary) {
  const at::Tensor logits = random({3, 16}), losses = at::empty({3}), counted = at::ones({3, 1});
  const at::Tensor labels = at::tensor({3, 16, -5}, at::kLong).view({3, 1});
  HEDDLE_CALL(token_loss, 3, data<T>(logits), data<i64>(labels), data<float>(counted), data<float>(losses),
              16, 0.0F, 1);
  EXPECT_TRUE(losses[0].isfinite().item<bool>());
  EXPECT_TRUE(losses.narrow(0, 1, 2).isnan().all().item<bool>());
  EXPECT_TRUE(logits.narrow(0, 1, 2).isnan().all().item<bool>());
}

INSTANTIATE_TEST_SUITE_P(All, Kernels,
                         ::testing::Values(KernelVariant{false, false}, KernelVariant{false, true},
                                           KernelVariant{true, false}, KernelVariant{true, true}),
                         [](const auto& info) {
                           return std::string(info.param.narrow ? "Bf16" : "Float") +
                                  (info.param.wide ? "Wide" : "Single");
                         });

}  // namespace
}  // namespace heddle::tests::emulator
