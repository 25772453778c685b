// Transfers between stages: tensors, headers, and shapes in a dry world.
#include "lib/train/wires.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>

#include "heddle/mesh/call.h"
#include "heddle/mesh/dry.h"
#include "tests/thrown.h"

namespace heddle {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using tests::thrown_by;
using train::Buffers;
using train::Wires;

constexpr int kTag = 100;

// Tensors sent but not yet received, by tag.
using Pipe = std::map<int, std::deque<at::Tensor>>;

class Waited : public Work {
 public:
  explicit Waited(int& count) : count_(count) {}
  void wait() override { ++count_; }

 private:
  int& count_;
};

// The two ends run in one thread, so a receive finds the tensor sent before.
class End : public mesh::CheckedCommunicator {
 public:
  End(int rank, Pipe& pipe) : CheckedCommunicator("pp", rank, 2), pipe_(pipe) {}
  int messages = 0, waited = 0;
  std::vector<at::ScalarType> dtypes;

 protected:
  std::unique_ptr<Work> post(mesh::Call call) override {
    ++messages;
    if (call.operation == mesh::Operation::send) {
      dtypes.push_back(call.in.scalar_type());
      pipe_[call.tag].push_back(call.in.clone());
    } else {
      call.out.copy_(pipe_[call.tag].at(0));
      pipe_[call.tag].pop_front();
    }
    return std::make_unique<Waited>(waited);
  }

 private:
  Pipe& pipe_;
};

// An edge with stage 0 on one rank and stage 1 on the other.
struct Edge {
  explicit Edge(std::optional<at::ScalarType> wire = std::nullopt)
      : below(&lower, 2, wire, Buffers(0), at::kCPU), above(&upper, 2, wire, Buffers(0), at::kCPU) {}
  void choose(std::vector<int64_t> key) {
    below.choose_shape(key);
    above.choose_shape(key);
  }
  Tensors forward(const Tensors& tensors) {
    below.send_forward(tensors, 0, 1, kTag);
    return above.take_forward(above.receive_forward(0, 0, kTag), 0);
  }
  Tensors backward(const Tensors& gradients) {
    above.send_backward(gradients, 0, kTag + 1);
    return below.take_backward(below.receive_backward(0, 1, kTag + 1), 0);
  }
  Pipe pipe;
  End lower{0, pipe}, upper{1, pipe};
  Wires below, above;
};

at::Tensor trained(at::IntArrayRef sizes, double value) {
  return at::full(sizes, value, at::kFloat).set_requires_grad(true);
}

TEST(Wires, TensorsArriveWithTheirShapesDtypesAndWhetherTheyNeedGradients) {
  Edge edge;
  edge.choose({1});
  const Tensors sent = {trained({2, 3}, 0.5), at::Tensor(), at::full({4}, 7, at::kLong),
                        at::full({}, 3, at::kDouble)};
  const Tensors came = edge.forward(sent);
  ASSERT_EQ(came.size(), sent.size());
  for (size_t i : {0, 2, 3}) {
    EXPECT_TRUE(at::equal(came[i], sent[i])) << i;
    EXPECT_EQ(came[i].scalar_type(), sent[i].scalar_type()) << i;
    EXPECT_EQ(came[i].requires_grad(), i == 0) << i;
    EXPECT_TRUE(came[i].is_leaf()) << i;
  }
  EXPECT_FALSE(came[1].defined());
}

TEST(Wires, ReturnOnlyRequestedGradients) {
  Edge edge;
  edge.choose({1});
  edge.forward({at::ones({2}), trained({3}, 1), at::Tensor(), trained({5}, 2)});
  const Tensors gradients = edge.backward({at::full({3}, 4.0), at::full({5}, 6.0)});
  ASSERT_EQ(gradients.size(), 2u);
  EXPECT_TRUE(at::equal(gradients[0], at::full({3}, 4.0)));
  EXPECT_TRUE(at::equal(gradients[1], at::full({5}, 6.0)));
}

TEST(Wires, SendAHeaderOncePerShape) {
  Edge edge;
  const auto messages = [&](std::vector<int64_t> key, int64_t rows) {
    const int before = edge.lower.messages;
    edge.choose(std::move(key));
    edge.forward({trained({rows}, 1)});
    return edge.lower.messages - before;
  };
  EXPECT_EQ(messages({1}, 2), 3);  // header length, header, tensor
  EXPECT_EQ(messages({1}, 2), 1);
  EXPECT_EQ(messages({2}, 5), 3);
  EXPECT_EQ(messages({1}, 2), 1);
  EXPECT_EQ(messages({2}, 5), 1);
}

TEST(Wires, ForgetTheOldestShapesOnBothSides) {
  Edge edge;
  for (int64_t key = 0; key < 65; ++key) {
    edge.choose({key});
    edge.forward({trained({key + 1}, 1)});
  }
  for (const auto& [key, messages] : {std::pair(1, 1), std::pair(64, 1), std::pair(0, 3)}) {
    const int before = edge.lower.messages;
    edge.choose({key});
    EXPECT_EQ(edge.forward({trained({key + 1}, 1)})[0].size(0), key + 1);
    EXPECT_EQ(edge.lower.messages - before, messages) << key;
  }
}

TEST(Wires, FloatsAreCastOnTheWireAndHaveTheirOwnDtypeAgain) {
  Edge edge(at::kBFloat16);
  edge.choose({1});
  const Tensors came = edge.forward({trained({2}, 1.00390625), at::full({1}, 300, at::kInt)});
  EXPECT_THAT(edge.lower.dtypes, ElementsAre(at::kLong, at::kLong, at::kBFloat16, at::kInt));
  EXPECT_EQ(came[0].scalar_type(), at::kFloat);
  EXPECT_TRUE(at::equal(came[0], at::full({2}, 1.0)));  // bfloat16 cannot represent 1 + 2^-8
  const Tensors gradients = edge.backward({at::full({2}, 0.5)});
  EXPECT_THAT(edge.upper.dtypes, ElementsAre(at::kBFloat16));
  EXPECT_EQ(gradients[0].scalar_type(), at::kFloat);
}

TEST(Wires, RefuseOtherShapesForOneBatchShape) {
  for (const at::Tensor& other :
       {trained({3}, 1), at::ones({2}), trained({2}, 1).to(at::kDouble), at::Tensor()}) {
    Edge edge;
    edge.choose({1});
    edge.forward({trained({2}, 1)});
    EXPECT_THAT(
        thrown_by([&] { edge.forward({other}); }),
        HasSubstr("stage 0 returns tensors of other shapes or dtypes than before for a batch of one shape"));
  }
}

TEST(Wires, SendsAreWaitedForLateAndAllOfThemAtTheEnd) {
  Edge edge;
  edge.choose({1});
  for (int i = 0; i < 7; ++i) edge.forward({trained({2}, i)});
  EXPECT_EQ(edge.lower.waited, 0);  // nine messages so far
  edge.forward({trained({2}, 7)});
  EXPECT_EQ(edge.lower.waited, 1);
  edge.below.settle();
  EXPECT_EQ(edge.lower.waited, edge.lower.messages);
}

// Rank 1 of a dry pipeline of three ranks. It holds stages 1 and 4 of five.
struct DryEnd {
  DryEnd() { wires.choose_shape({1}); }
  DryRank world{1, 3};
  std::unique_ptr<Communicator> ranks = world.group("pp", std::vector<int>{0, 1, 2});
  std::vector<std::string> ran;
  Wires wires{ranks.get(), 5, std::nullopt, Buffers(0), at::kMeta, [this](int stage, Tensors inputs) {
                ran.push_back(std::to_string(stage) + " of " + std::to_string(inputs.size()));
                const int64_t rows = inputs.empty() ? 10 : inputs[0].size(0) + 1;
                EXPECT_TRUE(inputs.empty() || inputs[0].requires_grad());
                return Tensors{at::empty({rows}, at::device(at::kMeta)).set_requires_grad(true)};
              }};
};

TEST(Wires, LearnShapesFromEarlierStagesInADryWorld) {
  DryEnd end;
  const Tensors first = end.wires.take_forward(end.wires.receive_forward(0, 0, kTag), 0);
  EXPECT_EQ(first[0].sizes(), at::IntArrayRef({10}));
  EXPECT_TRUE(first[0].is_meta());
  EXPECT_TRUE(first[0].requires_grad());
  end.wires.send_forward({at::empty({20}, at::device(at::kMeta)).set_requires_grad(true)}, 1, 2, kTag);
  for (int i = 0; i < 2; ++i) {  // cached: stage 2 gets the sent tensor, stage 3 stage 2's output
    const Tensors later = end.wires.take_forward(end.wires.receive_forward(3, 0, kTag + 3), 3);
    EXPECT_EQ(later[0].sizes(), at::IntArrayRef({22}));
  }
  EXPECT_THAT(end.ran, ElementsAre("0 of 0", "2 of 1", "3 of 1"));
}

TEST(Wires, ListHeadersInADryWorld) {
  DryEnd end;
  end.wires.receive_forward(0, 0, kTag);
  EXPECT_THAT(end.world.entries(),
              ElementsAre(DryEntry{mesh::Operation::receive, 8, "pp", 3},
                          DryEntry{mesh::Operation::receive, 6 * 8, "pp", 3},  // one one-dimensional tensor
                          DryEntry{mesh::Operation::receive, 10 * 4, "pp", 3}));
}

}  // namespace
}  // namespace heddle
