// Stopping on one topology and going on with every other: the numbers are those of one rank that never
// stopped.
#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <gtest/gtest.h>

#include "plugins/whole_runs.h"

namespace heddle::tests {
namespace {

const std::string kFp32Policy = "mp_policy: {param_dtype: float32, reduce_dtype: float32}";

const std::vector<Topology>& topologies() {
  static const std::vector<Topology> all{
      {"single", 1, "{strategy: single}"},
      {"ddp2", 2, "{strategy: ddp}"},
      {"fsdp2", 2, "{strategy: fsdp2, " + kFp32Policy + "}"},
      {"fsdp4", 4, "{strategy: fsdp2, " + kFp32Policy + "}"},
      {"hsdp", 4, "{strategy: fsdp2, dp_replicate_size: 2, " + kFp32Policy + "}"},
      {"tp2", 2, "{strategy: fsdp2, tp_size: 2, sequence_parallel: true, " + kFp32Policy + "}"},
      {"pp2", 2, "{strategy: ddp, pp_size: 2, pipeline: {pp_schedule: 1f1b, pp_microbatch_size: 1}}"},
      {"zero1", 2, "{strategy: megatron_fsdp, zero_dp_strategy: 1}"},
      {"zero3", 2, "{strategy: megatron_fsdp, zero_dp_strategy: 3}"}};
  return all;
}

// Also left and entered: Megatron-Core's words.
const std::vector<Topology>& megatron_topologies() {
  static const std::vector<Topology> all{
      {"distributed_optimizer", 2,
       "{strategy: megatron, use_distributed_optimizer: true, bucket_size: 1000}"},
      {"no_shard", 2,
       "{strategy: megatron, use_megatron_fsdp: true, data_parallel_sharding_strategy: no_shard}"},
      {"optim", 2, "{strategy: megatron, use_megatron_fsdp: true, data_parallel_sharding_strategy: optim}"},
      {"optim_grads", 2,
       "{strategy: megatron, use_megatron_fsdp: true, data_parallel_sharding_strategy: optim_grads}"},
      {"optim_grads_params", 2,
       "{strategy: megatron, use_megatron_fsdp: true, data_parallel_sharding_strategy: optim_grads_params}"}};
  return all;
}

constexpr int kSteps = 8, kStop = 4;
const std::string kStoppedAt = "/epoch_0_step_3", kEnd = "/epoch_1_step_7";

// One rank, never stopped.
struct Undisturbed {
  WholeRuns runs;
  Told told = runs.train(topologies()[0], "run", kSteps);
  std::map<std::string, at::Tensor> parameters = tensors_of(runs / ("run" + kEnd) / "model");
};

const Undisturbed& undisturbed() {
  static const Undisturbed one;
  return one;
}

double apart(double got, double want) {
  return std::abs(got - want) / std::abs(want);
}

void expect_the_rest(const Told& got, const std::map<std::string, at::Tensor>& parameters) {
  const Told& want = undisturbed().told;
  ASSERT_LT(want.losses[kSteps - 1], want.losses[0]);
  ASSERT_EQ(got.steps, (std::vector<int64_t>{4, 5, 6, 7}));
  for (size_t i = 0; i < got.steps.size(); ++i) {
    EXPECT_LT(apart(got.losses[i], want.losses[kStop + i]), 2e-5) << "loss of step " << got.steps[i];
    EXPECT_LT(apart(got.norms[i], want.norms[kStop + i]), 2e-4) << "norm of step " << got.steps[i];
  }
  for (const auto& [name, tensor] : undisturbed().parameters)
    EXPECT_TRUE(at::allclose(parameters.at(name), tensor, 1e-3, 2e-5)) << name;
}

// Saves on one, then goes on with each of the others.
void expect_resumable(const Topology& from, const std::vector<Topology>& others) {
  const WholeRuns runs;
  runs.train(from, "from", kStop);
  for (const Topology& to : others) {
    SCOPED_TRACE("from " + from.name + " to " + to.name);
    const Told rest = runs.train(to, to.name, kSteps, "from" + kStoppedAt);
    expect_the_rest(rest, tensors_of(runs / (to.name + kEnd) / "model"));
  }
}

std::vector<Topology> all_topologies() {
  std::vector<Topology> all = topologies();
  all.insert(all.end(), megatron_topologies().begin(), megatron_topologies().end());
  return all;
}

class ResumePairs : public ::testing::TestWithParam<Topology> {};

TEST_P(ResumePairs, GoOnWithTheNumbersOfOneRank) {
  expect_resumable(GetParam(), topologies());
}

INSTANTIATE_TEST_SUITE_P(From, ResumePairs, ::testing::ValuesIn(topologies()),
                         [](const auto& info) { return info.param.name; });

TEST(ResumeMegatron, IsLeftAndEnteredInEverySharding) {
  expect_resumable(topologies()[3], megatron_topologies());
  for (const Topology& from : megatron_topologies()) expect_resumable(from, {topologies()[5]});
}

class ResumeSame : public ::testing::TestWithParam<Topology> {};

TEST_P(ResumeSame, GivesTheBitsOfARunThatNeverStopped) {
  const WholeRuns runs;
  const Told whole = runs.train(GetParam(), "whole", kSteps);
  runs.train(GetParam(), "cut", kStop);
  const Told cut = runs.train(GetParam(), "cut", kSteps);
  EXPECT_EQ(cut.steps, whole.steps);
  EXPECT_EQ(cut.losses, whole.losses);
  EXPECT_EQ(cut.norms, whole.norms);
  ASSERT_NE(checksums_of(runs / ("whole" + kEnd)), checksums_of(runs / ("whole" + kStoppedAt)));
  EXPECT_EQ(checksums_of(runs / ("cut" + kEnd)), checksums_of(runs / ("whole" + kEnd)));
}

INSTANTIATE_TEST_SUITE_P(On, ResumeSame, ::testing::ValuesIn(all_topologies()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace heddle::tests
