// A split backward gives the bits of a whole backward for every use of linear layers.
#include "heddle/nn/weight_gradients.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include "heddle/nn/linear.h"
#include "heddle/parallel/after_gradient.h"

namespace heddle {
namespace {

using Leaves = std::vector<at::Tensor>;
using Body = std::function<at::Tensor(const Leaves&, const Batch&)>;

Leaves copies(const Leaves& leaves) {
  Leaves out;
  for (const at::Tensor& leaf : leaves) out.push_back(leaf.detach().clone().set_requires_grad(true));
  return out;
}

void backward(const at::Tensor& y) {
  torch::autograd::backward({y}, {(at::arange(y.numel(), y.options()) * 0.37).sin().view(y.sizes())});
}

// Leaf 0 is the input, the others are weights. Compares every gradient bit by bit.
void expect_split_is_whole(const Body& body, const Leaves& leaves) {
  const Leaves whole = copies(leaves), split = copies(leaves);
  backward(body(whole, {}));
  WeightGradients queue;
  Batch batch;
  batch.weight_gradients = &queue;
  const at::Tensor y = body(split, batch);
  queue.defer();
  backward(y);
  EXPECT_TRUE(at::equal(split[0].grad(), whole[0].grad()));
  EXPECT_FALSE(queue.empty());
  for (size_t i = 1; i < split.size(); ++i) EXPECT_FALSE(split[i].grad().defined()) << i;
  queue.drain();
  EXPECT_TRUE(queue.empty());
  for (size_t i = 1; i < split.size(); ++i) EXPECT_TRUE(at::equal(split[i].grad(), whole[i].grad())) << i;
}

at::Tensor random(at::IntArrayRef shape) {
  return at::randn(shape, at::kFloat);
}

struct WeightGradientsTest : ::testing::Test {
  void SetUp() override { at::manual_seed(3); }
};

TEST_F(WeightGradientsTest, EqualThoseOfAWholeBackwardForALinearWithAndWithoutABias) {
  const auto run = [](const Leaves& in, const Batch& batch) {
    return model::linear(in[0], in[1], in.size() > 2 ? in[2] : at::Tensor(), batch.weight_gradients);
  };
  expect_split_is_whole(run, {random({5, 7}), random({3, 7}), random({3})});
  expect_split_is_whole(run, {random({5, 7}), random({3, 7})});
  expect_split_is_whole(run, {random({2, 5, 7}), random({3, 7}), random({3})});
}

TEST_F(WeightGradientsTest, EqualThoseOfAWholeBackwardWithAResidual) {
  const auto run = [](const Leaves& in, const Batch& batch) {
    const at::Tensor x = in[0] * 2;
    return model::linear_onto(x, x.tanh(), in[1], in[2], batch.weight_gradients);
  };
  expect_split_is_whole(run, {random({5, 7}), random({7, 7}), random({7})});
}

TEST_F(WeightGradientsTest, EqualThoseOfAWholeBackwardForLayersOfOneInput) {
  const auto run = [](const Leaves& in, const Batch& batch) {
    Linear one(7, 3, Linear::Bias::zeros, {}, at::kFloat), two(7, 5, Linear::Bias::none, {}, at::kFloat);
    one.weight = in[1];
    one.bias = in[2];
    two.weight = in[3];
    const model::FewTensors both = model::call_each({&one, &two}, in[0], batch);
    return at::cat({both[0], both[1]}, 1);
  };
  expect_split_is_whole(run, {random({4, 7}), random({3, 7}), random({3}), random({5, 7})});
}

TEST_F(WeightGradientsTest, SumInTheOrderOfAWholeBackward) {
  const auto run = [](const Leaves& in, const Batch& batch) {
    at::Tensor x = in[0];
    for (int i = 0; i < 3; ++i) x = model::linear(x.tanh(), in[1], {}, batch.weight_gradients);
    return x;
  };
  expect_split_is_whole(run, {random({9, 7}), random({7, 7})});
}

TEST_F(WeightGradientsTest, AreComputedAtOnceWhereTheWeightIsComputedItself) {
  const Leaves leaves = {random({5, 7}), random({3, 7})};
  const Leaves whole = copies(leaves), split = copies(leaves);
  backward(model::linear(whole[0], whole[1] * 3, {}));
  WeightGradients queue;
  const at::Tensor y = model::linear(split[0], split[1] * 3, {}, &queue);
  queue.defer();
  backward(y);
  EXPECT_TRUE(queue.empty());
  EXPECT_TRUE(at::equal(split[1].grad(), whole[1].grad()));
}

TEST_F(WeightGradientsTest, AreNotAskedForWhereTheWeightIsFrozen) {
  const at::Tensor x = random({5, 7}).set_requires_grad(true), weight = random({3, 7});
  WeightGradients queue;
  const at::Tensor y = model::linear(x, weight, {}, &queue);
  queue.defer();
  backward(y);
  EXPECT_TRUE(queue.empty());
  EXPECT_TRUE(x.grad().defined());
  EXPECT_FALSE(weight.grad().defined());
}

TEST_F(WeightGradientsTest, StayWithAWholeBackwardThatDoesNotDefer) {
  WeightGradients queue;
  const at::Tensor x = random({5, 7}), weight = random({3, 7}).set_requires_grad(true);
  backward(model::linear(x, weight, {}, &queue));
  EXPECT_TRUE(queue.empty());
  EXPECT_TRUE(weight.grad().defined());
}

TEST_F(WeightGradientsTest, AccumulateOverMicrobatchesAsWholeBackwards) {
  const at::Tensor weight = random({3, 7}), one = random({5, 7}), two = random({5, 7});
  const at::Tensor whole = weight.clone().set_requires_grad(true);
  const at::Tensor split = weight.clone().set_requires_grad(true);
  for (const at::Tensor& x : {one, two}) backward(model::linear(x, whole, {}));
  WeightGradients first, second;
  const at::Tensor y1 = model::linear(one, split, {}, &first), y2 = model::linear(two, split, {}, &second);
  first.defer();
  backward(y1);
  second.defer();
  backward(y2);
  first.drain();
  second.drain();
  EXPECT_TRUE(at::equal(split.grad(), whole.grad()));
}

TEST_F(WeightGradientsTest, CallAHookOnceALeafAndOnlyWhenTheyAreThere) {
  const at::Tensor weight = random({7, 7}).set_requires_grad(true);
  const auto accumulator = torch::autograd::impl::grad_accumulator(weight);
  int calls = 0;
  accumulator->add_post_hook(std::make_unique<AfterGradient>([&calls] { ++calls; }));
  WeightGradients queue;
  const at::Tensor x = random({5, 7});
  const at::Tensor y = model::linear(model::linear(x, weight, {}, &queue), weight, {}, &queue);
  queue.defer();
  backward(y);
  EXPECT_EQ(calls, 0);
  queue.drain();
  EXPECT_EQ(calls, 1);
}

TEST_F(WeightGradientsTest, AddIntoAWiderGradientThatIsThereAlready) {
  const at::Tensor weight = random({3, 7}).to(at::kBFloat16).set_requires_grad(true);
  const at::Tensor x = random({5, 7}).to(at::kBFloat16);
  at::Tensor sum = at::zeros({3, 7}, at::kFloat);
  weight.mutable_grad() = sum;
  WeightGradients queue;
  const at::Tensor y = model::linear(x, weight, {}, &queue);
  queue.defer();
  backward(y);
  queue.drain();
  EXPECT_TRUE(weight.grad().is_same(sum));
  EXPECT_GT(sum.abs().sum().item<double>(), 0);
}

TEST_F(WeightGradientsTest, FreeWhatTheyHeldOneByOne) {
  WeightGradients queue;
  std::vector<std::weak_ptr<int>> held;
  std::vector<size_t> alive;
  const at::Tensor leaf = random({2}).set_requires_grad(true);
  for (int i = 0; i < 3; ++i) {
    auto token = std::make_shared<int>(i);
    held.push_back(token);
    queue.push({torch::autograd::impl::gradient_edge(leaf)}, [token, &held, &alive] {
      alive.push_back(static_cast<size_t>(
          std::count_if(held.begin(), held.end(), [](const auto& one) { return !one.expired(); })));
      return WeightGradients::Gradients{at::ones({2})};
    });
  }
  queue.drain();
  EXPECT_EQ(alive, (std::vector<size_t>{3, 2, 1}));
  EXPECT_TRUE(at::equal(leaf.grad(), at::full({2}, 3.0)));
}

TEST_F(WeightGradientsTest, NameTheLeavesOfADrainBeforeTheirHooksAreCalled) {
  const at::Tensor twice = random({7, 7}).set_requires_grad(true),
                   once = random({7, 7}).set_requires_grad(true);
  const auto accumulator = torch::autograd::impl::grad_accumulator(twice);
  const auto other = torch::autograd::impl::grad_accumulator(once);
  std::vector<std::string> story;
  accumulator->add_post_hook(std::make_unique<AfterGradient>([&story] { story.push_back("hook"); }));
  WeightGradients queue;
  at::Tensor y = random({5, 7});
  for (const at::Tensor& weight : {twice, once, twice}) y = model::linear(y, weight, {}, &queue);
  queue.defer();
  backward(y);
  queue.when_draining([&](const WeightGradients::Accumulators& leaves) {
    EXPECT_THAT(leaves, ::testing::UnorderedElementsAre(accumulator.get(), other.get()));
    story.push_back("begin");
  });
  queue.when_drained([&story] { story.push_back("end"); });
  queue.drain();
  EXPECT_EQ(story, (std::vector<std::string>{"begin", "hook", "end"}));
}

TEST_F(WeightGradientsTest, TellTheEndOfADrainOnceAlsoWhenNothingWaited) {
  WeightGradients queue;
  int ends = 0;
  queue.when_drained([&ends] { ++ends; });
  queue.drain();
  queue.drain();
  EXPECT_EQ(ends, 1);
}

}  // namespace
}  // namespace heddle
