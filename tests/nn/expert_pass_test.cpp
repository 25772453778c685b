// Experts in one pass on one thread have the bits of grouped products on several.
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

// The output and the gradients of x, the routing's weights, gate_up and down.
Tensors output_and_gradients(const Tensors& given, const at::Tensor& chosen, int threads) {
  const PassThreads run_on(threads);
  Tensors in;
  for (const at::Tensor& tensor : given) in.push_back(tensor.detach().clone().requires_grad_());
  const model::ExpertActivation how;
  EXPECT_EQ(model::has_expert_pass(how, in[0], {in[2], in[3]}), threads == 1);
  const at::Tensor y = model::experts(in[0], {chosen, in[1]}, {in[2], in[3]}, how);
  (y * at::linspace(-1, 1, y.numel()).view(y.sizes())).sum().backward();
  Tensors out = {y.detach()};
  for (const at::Tensor& tensor : in) out.push_back(tensor.grad());
  return out;
}

class ExpertPassTest : public testing::TestWithParam<PassCase> {};

TEST_P(ExpertPassTest, HasTheBitsOfGroupedProducts) {
  const PassCase& of = GetParam();
  at::manual_seed(5);
  const Tensors given = {at::randn({of.tokens, of.hidden}), at::rand({of.tokens, of.top_k}),
                         at::randn({of.experts, 2 * of.width, of.hidden}) * 0.1,
                         at::randn({of.experts, of.hidden, of.width}) * 0.1};
  // Expert 1 gets no token where there are enough others, and some choices have no expert.
  at::Tensor chosen =
      std::get<1>(at::rand({of.tokens, of.experts}).sort(1)).slice(1, 0, of.top_k).contiguous();
  if (of.experts > of.top_k) chosen = at::where(chosen.eq(1), -1, chosen);
  const Tensors one = output_and_gradients(given, chosen, 1), three = output_and_gradients(given, chosen, 3);
  for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(at::equal(one[i], three[i])) << i;
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
