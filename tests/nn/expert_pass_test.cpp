// The single-threaded fused expert pass gives the bits of multi-threaded grouped products.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "heddle/nn/experts.h"
#include "lib/nn/experts/expert_pass.h"

namespace heddle {
namespace {

using Tensors = std::vector<at::Tensor>;

struct PassCase {
  int64_t tokens, top_k, experts, hidden, width;
  std::string name;
};

class PassThreads {
 public:
  explicit PassThreads(int count) : before_(at::get_num_threads()) { at::set_num_threads(count); }
  ~PassThreads() { at::set_num_threads(before_); }

 private:
  int before_;
};

// Returns the output and the gradients of x, the routing weights, gate_up and down. The gradient of a frozen
// input is undefined.
Tensors output_and_gradients(const Tensors& given, const at::Tensor& chosen, int threads,
                             const model::ExpertActivation& how = {}, size_t frozen = 4) {
  const PassThreads run_on(threads);
  Tensors in;
  for (const at::Tensor& tensor : given)
    in.push_back(tensor.detach().clone().set_requires_grad(in.size() != frozen));
  EXPECT_EQ(model::has_expert_pass(how, in[0], {in[2], in[3]}), threads == 1);
  const at::Tensor y = model::experts(in[0], {chosen, in[1]}, {in[2], in[3]}, how);
  (y * at::linspace(-1, 1, y.numel()).view(y.sizes())).sum().backward();
  Tensors out = {y.detach()};
  for (const at::Tensor& tensor : in) out.push_back(tensor.grad());
  return out;
}

class ExpertPassTest : public testing::TestWithParam<PassCase> {};

Tensors pass_inputs(const PassCase& of) {
  at::manual_seed(5);
  return {at::randn({of.tokens, of.hidden}), at::rand({of.tokens, of.top_k}),
          at::randn({of.experts, 2 * of.width, of.hidden}) * 0.1,
          at::randn({of.experts, of.hidden, of.width}) * 0.1};
}

void expect_equal_bits(const Tensors& one, const Tensors& three) {
  for (size_t i = 0; i < one.size(); ++i) {
    ASSERT_EQ(one[i].defined(), three[i].defined()) << i;
    if (!one[i].defined()) continue;
    EXPECT_TRUE(at::equal(one[i], three[i])) << i;
  }
}

TEST_P(ExpertPassTest, HasTheBitsOfGroupedProducts) {
  const PassCase& of = GetParam();
  const Tensors given = pass_inputs(of);
  // Choices of expert 1 are replaced by no expert (-1) if there are more than top_k experts.
  at::Tensor chosen =
      std::get<1>(at::rand({of.tokens, of.experts}).sort(1)).slice(1, 0, of.top_k).contiguous();
  if (of.experts > of.top_k) chosen = at::where(chosen.eq(1), -1, chosen);
  expect_equal_bits(output_and_gradients(given, chosen, 1), output_and_gradients(given, chosen, 3));
}

TEST(ExpertPass, HasTheBitsOfGroupedProductsWithFrozenInputsAndClampedGates) {
  const Tensors given = pass_inputs({45, 2, 5, 40, 24, ""});
  const at::Tensor chosen = at::arange(90).remainder(4).view({45, 2});
  const model::ExpertActivation clamped{model::ExpertActivation::Kind::clamped_swiglu, 1.702, 0.5};
  for (const model::ExpertActivation& how : {model::ExpertActivation{}, clamped})
    for (const size_t frozen : {0, 1, 2, 3, 4})
      expect_equal_bits(output_and_gradients(given, chosen, 1, how, frozen),
                        output_and_gradients(given, chosen, 3, how, frozen));
}

TEST(ExpertPass, TakesNoTokens) {
  const Tensors given = pass_inputs({0, 2, 3, 16, 8, ""});
  const Tensors out = output_and_gradients(given, at::zeros({0, 2}, at::kLong), 1);
  EXPECT_EQ(out[0].numel(), 0);
  EXPECT_TRUE(at::equal(out[3], at::zeros_like(given[2])));
  EXPECT_TRUE(at::equal(out[4], at::zeros_like(given[3])));
}

INSTANTIATE_TEST_SUITE_P(
    Sizes, ExpertPassTest,
    testing::Values(PassCase{37, 1, 5, 33, 7, "OddSizes"}, PassCase{64, 8, 9, 48, 24, "TopEight"},
                    PassCase{50, 1, 1, 64, 32, "OneExpert"}, PassCase{300, 2, 4, 256, 96, "ManyRows"},
                    PassCase{260, 1, 2, 300, 520, "SeveralBlocks"}, PassCase{3, 2, 16, 20, 12, "FewTokens"}),
    [](const auto& info) { return info.param.name; });

TEST(ExpertPass, IsNotForBiasesOrOtherTypes) {
  const PassThreads run_on(1);
  const model::ExpertActivation how;
  const at::Tensor x = at::randn({4, 6}), gate_up = at::randn({2, 8, 6}), down = at::randn({2, 6, 4});
  EXPECT_TRUE(model::has_expert_pass(how, x, {gate_up, down}));
  EXPECT_FALSE(model::has_expert_pass(how, x, {gate_up, down, at::zeros({2, 8}), at::zeros({2, 6})}));
  EXPECT_FALSE(model::has_expert_pass(how, x.to(at::kDouble), {gate_up, down}));
  EXPECT_FALSE(model::has_expert_pass({model::ExpertActivation::Kind::geglu}, x, {gate_up, down}));
}

}  // namespace
}  // namespace heddle
