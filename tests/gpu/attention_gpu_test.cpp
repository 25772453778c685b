// Attention over documents and in parts on a GPU, compared with the CPU kernel. scripts/gpu_test runs these
// tests, ctest does not.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>

#include "heddle/nn/attention_layout.h"

namespace heddle::tests {
namespace {

struct AttentionResult {
  at::Tensor out, sums, q, k, v;
};

// Attends to the keys in parts. All tensors but the ranges are in the memory of `device`.
AttentionResult attended_on(c10::Device device, const at::Tensor& seen, const std::vector<int64_t>& cuts) {
  at::manual_seed(5);
  const int64_t tokens = seen.size(0);
  constexpr int64_t kDim = 64;
  const auto random = [&](int64_t heads) {
    return at::randn({tokens, heads * kDim}).to(at::kBFloat16).to(device);
  };
  const at::Tensor q = random(4), k = random(2), v = random(2), d_out = random(4);
  const at::TensorOptions wide = at::TensorOptions(at::kFloat).device(device);
  AttentionResult all{at::empty(q.sizes(), wide), at::empty({4, tokens}, wide), at::zeros(q.sizes(), wide),
                      at::zeros(k.sizes(), wide), at::zeros(v.sizes(), wide)};
  const model::BlockedShape shape{kDim, kDim, 0.125, 0};
  const auto part = [&](int64_t first, int64_t count) {
    return model::BlockedInputs{q, k.narrow(0, first, count), v.narrow(0, first, count),
                                seen.sub(first).clamp(0, count).to(at::kInt).contiguous()};
  };
  for (size_t i = 0; i + 1 < cuts.size(); ++i)
    model::attend_ranges(part(cuts[i], cuts[i + 1] - cuts[i]), shape, all.out, all.sums, i > 0);
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    const int64_t first = cuts[i], count = cuts[i + 1] - first;
    model::attend_ranges_backward(part(first, count), shape, d_out, all.out, all.sums,
                                  {all.q, all.k.narrow(0, first, count), all.v.narrow(0, first, count)},
                                  true);
  }
  return all;
}

TEST(AttentionOnGpu, EqualsTheCpuOverDocumentsAndInParts) {
  for (const bool causal : {true, false})
    for (const int64_t window : {0, 33}) {
      if (!causal && window > 0) continue;
      const model::Heads heads{1, 700, 64, {causal, window}, {}};
      const at::Tensor seen = model::visible_keys(heads, at::tensor({0, 1, 130, 131, 520, 700}, at::kInt));
      for (const std::vector<int64_t>& cuts : {std::vector<int64_t>{0, 700}, {0, 200, 450, 700}}) {
        const AttentionResult want = attended_on(at::kCPU, seen, cuts),
                              got = attended_on(at::kCUDA, seen, cuts);
        const std::string what = std::string(causal ? "causal " : "full ") + std::to_string(window);
        const auto expect_near = [&](const at::Tensor& one, const at::Tensor& other, const char* name) {
          const double away = (one.cpu() - other).abs().max().item<double>();
          EXPECT_LE(away, 2e-2 * std::max(1.0, other.abs().max().item<double>())) << what << " " << name;
        };
        expect_near(got.out, want.out, "out");
        expect_near(got.sums, want.sums, "log-sums");
        expect_near(got.q, want.q, "q");
        expect_near(got.k, want.k, "k");
        expect_near(got.v, want.v, "v");
      }
    }
}

}  // namespace
}  // namespace heddle::tests
