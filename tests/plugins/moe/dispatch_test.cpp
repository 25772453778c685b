// Dispatchers alone: routings that no router returns, ranks without tokens, and capacity limits.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <mutex>

#include "heddle/transport/threads.h"
#include "plugins/moe/capacity.h"
#include "plugins/moe/dispatcher.h"

namespace heddle::tests {
namespace {

constexpr int64_t kExperts = 8, kHidden = 6;
const Experts::Shape kShape{kExperts, kHidden, 5, {}, true};
const Experts::Names kDispatchNames{"gate_up_proj", "down_proj", "gate_up_proj_bias", "down_proj_bias"};

// Inputs and outputs of a rank.
struct MicrobatchState {
  at::Tensor x, chosen, weights;  // of the rank's tokens
  at::Tensor y, dx, d_weights, d_gate_up, d_down, d_gate_up_bias, d_down_bias;
};

void fill(at::Tensor values, int64_t seed) {
  const at::NoGradGuard no_gradients;
  values.copy_(
      (at::arange(values.numel(), at::kFloat) * 0.37 + static_cast<double>(seed)).sin().view(values.sizes()));
}

void set(at::Tensor& parameter, const at::Tensor& value) {
  parameter = value.detach().clone().requires_grad_(true);
}

// Fills the experts [begin, begin + count) of the same eight experts.
void fill_experts(Experts& experts, int64_t begin, int64_t count) {
  at::Tensor gate_up = at::empty({kExperts, 10, kHidden}), down = at::empty({kExperts, kHidden, 5});
  fill(gate_up, 1);
  fill(down, 2);
  at::Tensor gate_up_bias = at::empty({kExperts, 10}), down_bias = at::empty({kExperts, kHidden});
  fill(gate_up_bias, 3);
  fill(down_bias, 4);
  set(experts.gate_up_bias, gate_up_bias.narrow(0, begin, count));
  set(experts.down_bias, down_bias.narrow(0, begin, count));
  set(experts.gate_up, gate_up.narrow(0, begin, count));
  set(experts.down, down.narrow(0, begin, count));
}

void pass(Experts& experts, MicrobatchState& given) {
  const at::Tensor x = given.x.clone().requires_grad_(true), w = given.weights.clone().requires_grad_(true);
  Batch batch;
  model::Meanwhile nothing([] {});
  given.y = experts.run(x, {given.chosen, w}, batch, nothing);
  (given.y * given.y).sum().backward();
  given.dx = x.grad(), given.d_weights = w.grad();
  given.d_gate_up = experts.gate_up.grad(), given.d_down = experts.down.grad();
  given.d_gate_up_bias = experts.gate_up_bias.grad(), given.d_down_bias = experts.down_bias.grad();
}

MicrobatchState of(const std::vector<int64_t>& chosen, int64_t k, int64_t seed) {
  const auto tokens = static_cast<int64_t>(chosen.size()) / k;
  MicrobatchState out;
  out.x = at::empty({tokens, kHidden});
  out.weights = at::empty({tokens, k});
  out.chosen = at::tensor(chosen, at::kLong).view({tokens, k});
  fill(out.x, seed);
  fill(out.weights, seed + 7);
  return out;
}

using Make = std::unique_ptr<moe::Dispatcher> (*)(Communicator& ranks);
const std::vector<std::pair<const char*, Make>> kMakers = {{"allgather", moe::make_gathered},
                                                           {"alltoall", moe::make_all_to_all}};

// Compares every rank's microbatch with one rank that has all tokens and all experts.
void expect_as_alone(std::vector<MicrobatchState> ranks, Make make, int64_t room = 0) {
  const int count = static_cast<int>(ranks.size());
  const int64_t held = kExperts / count;
  ThreadWorld(count).run([&](Rendezvous& rendezvous) {
    std::vector<int> all(count);
    for (int rank = 0; rank < count; ++rank) all[rank] = rank;
    const auto group = rendezvous.group("ep", all);
    const auto dispatcher = make(*group);
    Experts experts(kShape, kDispatchNames, Init(), at::TensorOptions().dtype(at::kFloat));
    fill_experts(experts, held * rendezvous.rank(), held);
    experts.instead.add(Experts::Instead::around(
        "test", 0,
        [&](const at::Tensor& x, const model::Routing& routing, Experts& self, const Batch& batch,
            model::Meanwhile& meanwhile, const moe::Local& local) {
          return dispatcher->run(x, routing, self, batch, meanwhile, local, room);
        }));
    pass(experts, ranks[rendezvous.rank()]);
  });
  MicrobatchState alone;
  std::vector<at::Tensor> x, chosen, weights, y, dx, d_weights, gate_up, down, gate_up_bias, down_bias;
  for (const MicrobatchState& one : ranks) {
    x.push_back(one.x), chosen.push_back(one.chosen), weights.push_back(one.weights);
    y.push_back(one.y), dx.push_back(one.dx), d_weights.push_back(one.d_weights);
    gate_up.push_back(one.d_gate_up), down.push_back(one.d_down);
    gate_up_bias.push_back(one.d_gate_up_bias), down_bias.push_back(one.d_down_bias);
  }
  alone.x = at::cat(x), alone.chosen = at::cat(chosen), alone.weights = at::cat(weights);
  Experts experts(kShape, kDispatchNames, Init(), at::TensorOptions().dtype(at::kFloat));
  fill_experts(experts, 0, kExperts);
  pass(experts, alone);
  EXPECT_TRUE(at::allclose(at::cat(y), alone.y, 1e-6, 1e-6));
  EXPECT_TRUE(at::allclose(at::cat(dx), alone.dx, 1e-5, 1e-5));
  EXPECT_TRUE(at::allclose(at::cat(d_weights), alone.d_weights, 1e-5, 1e-5));
  EXPECT_TRUE(at::allclose(at::cat(gate_up), alone.d_gate_up, 1e-5, 1e-5));
  EXPECT_TRUE(at::allclose(at::cat(down), alone.d_down, 1e-5, 1e-5));
  EXPECT_TRUE(at::allclose(at::cat(gate_up_bias), alone.d_gate_up_bias, 1e-5, 1e-5));
  EXPECT_TRUE(at::allclose(at::cat(down_bias), alone.d_down_bias, 1e-5, 1e-5));
}

TEST(Dispatch, EqualsOneRankForEveryRouting) {
  for (const auto& [name, make] : kMakers) {
    SCOPED_TRACE(name);
    expect_as_alone({of({0, 7, 3, 2, 5, 1}, 2, 1), of({6, 4, 0, 1}, 2, 2)}, make);  // different lengths
    expect_as_alone({of({5, 5, 5}, 1, 1), of({5}, 1, 2)}, make);  // one expert for all tokens
    expect_as_alone({of({0, 1, 2}, 1, 1), of({}, 1, 2), of({3}, 1, 3), of({7, 7}, 1, 4)},
                    make);                                                  // ranks without tokens
    expect_as_alone({of({}, 2, 1), of({}, 2, 2)}, make);                    // no tokens at all
    expect_as_alone({of({0, -1, -1, -1}, 2, 1), of({-1, 3}, 2, 2)}, make);  // dropped choices
    expect_as_alone({of({0, 1, 2, 3, 4, 5, 6, 7}, 8, 1), of({7, 6, 5, 4, 3, 2, 1, 0}, 8, 2)}, make);
  }
}

TEST(Dispatch, PadsToTheCapacityOfEachRank) {
  expect_as_alone({of({0, 7, 3, 2, 5, 1}, 2, 1), of({6, 4, 0, 1}, 2, 2)}, moe::make_all_to_all, 3);
  expect_as_alone({of({0, -1, -1, -1}, 2, 1), of({-1, 3}, 2, 2)}, moe::make_all_to_all, 1);
  expect_as_alone({of({5, 5, 5}, 1, 1), of({}, 1, 2)}, moe::make_all_to_all, 4);
}

TEST(Capacity, KeepsTheLargestWeightsOrTheFirst) {
  const at::Tensor chosen = at::tensor({0, 1, 0, 1, 0, 2, 0, 2}, at::kLong).view({4, 2});
  const at::Tensor weights = at::tensor({0.2, 0.8, 0.5, 0.5, 0.9, 0.1, 0.5, 0.5}, at::kFloat).view({4, 2});
  const auto kept = [&](moe::Keeps keeps) {
    const at::Tensor left = moe::within_capacity({chosen, weights}, 3, 2, keeps).experts.reshape({-1});
    return std::vector<int64_t>(left.const_data_ptr<int64_t>(), left.const_data_ptr<int64_t>() + 8);
  };
  EXPECT_EQ(kept(moe::Keeps::largest_weights), (std::vector<int64_t>{-1, 1, 0, 1, 0, 2, -1, 2}));
  EXPECT_EQ(kept(moe::Keeps::first), (std::vector<int64_t>{0, 1, 0, 1, -1, 2, -1, 2}));
}

TEST(Capacity, IsRoundedUp) {
  EXPECT_EQ(moe::capacity_of(21, 2, 8, 1.0), 6);
  EXPECT_EQ(moe::capacity_of(21, 2, 8, 1.25), 7);
  EXPECT_EQ(moe::capacity_of(1, 1, 8, 0.5), 1);
}

}  // namespace
}  // namespace heddle::tests
