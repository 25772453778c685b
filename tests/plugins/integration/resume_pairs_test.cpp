// A run that stops on one topology and resumes on any other equals one rank that never stopped.
#include <gtest/gtest.h>

#include "plugins/whole_runs.h"
#include "tests/main/with_all.h"

namespace heddle::tests {
namespace {

HEDDLE_WITH_ALL("From/ResumePairs*:ResumeTied.*:ResumeMegatron.*");

const std::vector<Topology>& topologies() {
  static const std::vector<Topology> all{{"single", 1, "{strategy: single}"},
                                         {"ddp2", 2, "{strategy: ddp}"},
                                         {"fsdp2", 2, kFsdp2InFp32 + "}"},
                                         {"fsdp4", 4, kFsdp2InFp32 + "}"},
                                         {"hsdp", 4, kFsdp2InFp32 + ", dp_replicate_size: 2}"},
                                         {"tp2", 2, kFsdp2InFp32 + ", tp_size: 2, sequence_parallel: true}"},
                                         {"pp2", 2, "{strategy: ddp, " + two_stages("1f1b") + "}"},
                                         {"zero1", 2, "{strategy: megatron_fsdp, zero_dp_strategy: 1}"},
                                         {"zero3", 2, "{strategy: megatron_fsdp, zero_dp_strategy: 3}"}};
  return all;
}

// Topologies with Megatron-Core's fields, to resume from and on.
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

std::vector<Topology> all_topologies() {
  std::vector<Topology> all = topologies();
  all.insert(all.end(), megatron_topologies().begin(), megatron_topologies().end());
  return all;
}

class ResumePairs : public ::testing::TestWithParam<Topology> {};

TEST_P(ResumePairs, EqualOneRank) {
  expect_resumes_among(WholeRuns(), {GetParam()}, topologies());
}

INSTANTIATE_TEST_SUITE_P(From, ResumePairs, ::testing::ValuesIn(topologies()),
                         [](const auto& info) { return info.param.name; });

TEST(ResumeMegatron, ResumesFromAndOnEverySharding) {
  expect_resumes_among(WholeRuns(), {topologies()[3]}, megatron_topologies());
  expect_resumes_among(WholeRuns(), megatron_topologies(), {topologies()[5]});
}

class ResumeSame : public ::testing::TestWithParam<Topology> {};

TEST_P(ResumeSame, EqualsTheBitsOfARunThatNeverStopped) {
  expect_resumes(WholeRuns(), GetParam());
}

INSTANTIATE_TEST_SUITE_P(On, ResumeSame, ::testing::ValuesIn(all_topologies()),
                         [](const auto& info) { return info.param.name; });

// Each stage reads its copy of the tied embedding, and one stage writes it.
TEST(ResumeTied, ResumesFromAndOnStages) {
  WholeRuns runs;
  runs.model = runs.model.substr(0, runs.model.size() - 1) + ", tie_word_embeddings: true}";
  const std::vector<Topology> stages{
      {"fsdp2_pp", 4, kFsdp2InFp32 + ", " + two_stages("1f1b") + "}"},
      {"megatron_pp", 4,
       "{strategy: megatron, use_distributed_optimizer: true, bucket_size: 1000, " + two_stages("zb1p") +
           "}"}};
  expect_resumes_among(runs, {topologies()[0]}, stages);
  expect_resumes_among(runs, stages, {stages[0], topologies()[3]});
  for (const Topology& one : stages) expect_resumes(runs, one);
}

}  // namespace
}  // namespace heddle::tests
