// Callbacks of a strategy during a backward: whole, split, and with units that get no gradient.
#include "heddle/sharding/backward_walk.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <string>

#include "heddle/nn/linear.h"

namespace heddle {
namespace {

using ::testing::ElementsAre;

// Three linear layers in sequence. Each has one bucket with a weight and a bias. Callbacks are
// recorded.
class Walked : public BackwardWalk::Stops {
 public:
  Walked() {
    for (size_t unit = 0; unit < 3; ++unit) {
      weights.push_back(at::randn({4, 4}).set_requires_grad(true));
      biases.push_back(at::randn({4}).set_requires_grad(true));
      walk.add(weights[unit], unit);
      walk.add(biases[unit], unit);
    }
  }
  at::Tensor forward(at::Tensor x, WeightGradients* queue = nullptr) {
    for (size_t unit = 0; unit < 3; ++unit) {
      if (cut_before != unit) {
        x = model::linear(x, weights[unit], biases[unit], queue);
      } else {
        x = model::linear(x.detach(), weights[unit], biases[unit], queue);
      }
      walk.watch(unit, {x}, queue);
    }
    return x;
  }
  std::vector<std::string> take() { return std::exchange(seen, {}); }

  void approach(size_t unit) override { note("approach", unit); }
  void enter(size_t unit) override { note("enter", unit); }
  void complete(size_t bucket) override { note("complete", bucket); }
  void ended(WeightGradients* queue) override { seen.push_back(queue == nullptr ? "ended" : "ended, split"); }
  void awaits(size_t bucket) override { note("awaits", bucket); }
  void drained() override { seen.push_back("drained"); }

  std::vector<at::Tensor> weights, biases;
  size_t cut_before = 3;  // index of the unit whose input is detached
  std::vector<std::string> seen;
  BackwardWalk walk{*this, 3};

 private:
  void note(const std::string& what, size_t number) { seen.push_back(what + " " + std::to_string(number)); }
};

void backward(const at::Tensor& y) {
  torch::autograd::backward({y.sum()}, {});
}

struct BackwardWalkTest : ::testing::Test {
  void SetUp() override { at::manual_seed(5); }
  Walked stage;
};

TEST_F(BackwardWalkTest, ComesToEachUnitOnceFromTheLastAndCompletesItsBucketBehind) {
  for (int microbatch = 0; microbatch < 2; ++microbatch) {
    backward(stage.forward(at::randn({2, 4})));
    EXPECT_THAT(stage.take(), ElementsAre("approach 2", "enter 2", "complete 2", "approach 1", "enter 1",
                                          "complete 1", "approach 0", "enter 0", "complete 0", "ended"));
    EXPECT_FALSE(stage.walk.running());
  }
}

TEST_F(BackwardWalkTest, ApproachesUnitsToWhichNoGradientComesOnThisRank) {
  stage.cut_before = 2;
  backward(stage.forward(at::randn({2, 4})));
  EXPECT_THAT(stage.take(),
              ElementsAre("approach 2", "enter 2", "complete 2", "approach 1", "approach 0", "ended"));
}

TEST_F(BackwardWalkTest, SkipsUnitsWhoseForwardGaveNothingToDifferentiate) {
  for (const at::Tensor& leaf : {stage.weights[0], stage.biases[0]}) leaf.set_requires_grad(false);
  backward(stage.forward(at::randn({2, 4})));
  EXPECT_THAT(stage.take(), ElementsAre("approach 2", "enter 2", "complete 2", "approach 1", "enter 1",
                                        "complete 1", "ended"));
  EXPECT_FALSE(stage.walk.has_backward(0));
}

TEST_F(BackwardWalkTest, SeesNothingOfAForwardWithoutGradients) {
  {
    at::NoGradGuard no_gradients;
    stage.forward(at::randn({2, 4}));
  }
  EXPECT_FALSE(stage.walk.has_backward(2));
  EXPECT_TRUE(stage.take().empty());
}

TEST_F(BackwardWalkTest, CompletesNothingInTheFirstHalfOfASplitBackward) {
  WeightGradients queue;
  const at::Tensor y = stage.forward(at::randn({2, 4}).set_requires_grad(true), &queue);
  queue.defer();
  backward(y);
  EXPECT_THAT(stage.take(), ElementsAre("approach 2", "enter 2", "approach 1", "enter 1", "approach 0",
                                        "enter 0", "ended, split"));
  queue.drain();
  std::vector<std::string> drain = stage.take();
  EXPECT_EQ(drain.back(), "drained");
  for (size_t unit = 0; unit < 3; ++unit)
    EXPECT_EQ(std::count(drain.begin(), drain.end(), "complete " + std::to_string(unit)), 1);
  backward(stage.forward(at::randn({2, 4})));
  EXPECT_EQ(stage.take().back(), "ended");
}

TEST_F(BackwardWalkTest, LeavesABucketOfSeveralUnitsToTheEnd) {
  Walked shared;
  const at::Tensor tied = at::randn({4}).set_requires_grad(true);
  shared.walk.add(tied, 1, 2);
  backward(shared.forward(at::randn({2, 4})) * tied);
  const std::vector<std::string> seen = shared.take();
  EXPECT_EQ(std::count(seen.begin(), seen.end(), "complete 1"), 0);
  EXPECT_EQ(std::count(seen.begin(), seen.end(), "complete 2"), 1);
}

TEST_F(BackwardWalkTest, IsRunningStillWhereABackwardThrew) {
  const at::Tensor y = stage.forward(at::randn({2, 4}));
  y.register_hook([](const at::Tensor&) -> void { throw std::runtime_error("broken"); });
  EXPECT_FALSE(stage.walk.running());
  EXPECT_THROW(backward(y), std::runtime_error);
  EXPECT_TRUE(stage.walk.running());
}

}  // namespace
}  // namespace heddle
