// Replicas on hosts whose CPUs have different instruction sets.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <ostream>
#include <string>

#include "cluster.h"
#include "flow/stops/started.h"
#include "flow/training_files.h"
#include "run_folder.h"

namespace hosts {
namespace {

struct Replicas {
  const char* name;
  const char* distributed;  // fields of the section `distributed`
};

void PrintTo(const Replicas& replicas, std::ostream* out) {
  *out << replicas.name;
}

const Replicas kReplicas[] = {
    {"DDP", "strategy: ddp"},
    {"HSDP", "strategy: fsdp2, dp_replicate_size: 2"},
    {"TP2", "strategy: ddp, tp_size: 2"},
    {"TP4", "strategy: fsdp2, tp_size: 4"},
};

bool has_avx512() {
  return flow::read_text("/proc/cpuinfo").find(" avx512vl ") != std::string::npos;
}

// Adds a test failure for each parameter shard that differs in any bit between two ranks. Returns the number
// of compared shards and steps.
int compare_replicas(const RunFolder& folder, int ranks) {
  std::map<std::string, std::string> hashes;
  int compared = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    std::ifstream lines(folder.path("bits/rank" + std::to_string(rank)));
    for (std::string line; std::getline(lines, line);) {
      const std::string part = line.substr(0, line.find('=')), hash = line.substr(part.size());
      const auto [known, is_new] = hashes.emplace(part, hash);
      if (is_new) continue;
      ++compared;
      if (known->second == hash) continue;
      ADD_FAILURE() << "rank " << rank << " holds other bits than a rank before: step " << part;
      return compared;
    }
  }
  return compared;
}

class InstructionSets : public ::testing::TestWithParam<Replicas> {};

TEST_P(InstructionSets, GiveReplicasEqualBitsWhenHostsHaveDifferentOnes) {
  if (!has_avx512()) GTEST_SKIP() << "this processor has no instruction set above AVX2";
  constexpr int kSteps = 50;
  const RunFolder folder;
  std::filesystem::create_directory(folder.path("bits"));
  const Words run = {"--step_scheduler.max_steps", std::to_string(kSteps)};
  folder.train_alone(flow::plus(folder.save_in("alone", {"--distributed", "{strategy: single}"}), run));

  TwoHosts hosts;
  for (const int rank : {2, 3})
    for (const auto& [variable, level] : {std::pair{"HEDDLE_CPU_CAPABILITY", "avx2"},
                                          {"ATEN_CPU_CAPABILITY", "avx2"},
                                          {"MKL_ENABLE_INSTRUCTIONS", "AVX2"},
                                          {"DNNL_MAX_CPU_ISA", "AVX2"}})
      hosts.environment(rank)[variable] = level;
  std::string distributed = std::string("{") + GetParam().distributed;
  if (distributed.find("fsdp2") != std::string::npos)
    distributed += ", mp_policy: {param_dtype: float32, reduce_dtype: float32}";
  hosts.train(
      folder.recipe(),
      flow::plus(folder.save_in("both", {"--distributed", distributed + "}", "--plugins",
                                         "[" HEDDLE_BINARY_DIR "/tests/hosts]", "--optimizer._target_",
                                         "ReplicaBits", "--optimizer.directory", folder.path("bits")}),
                 run));
  ASSERT_TRUE(hosts.wait(90)) << hosts.report();
  ASSERT_TRUE(hosts.all_have_status(0)) << hosts.report();
  EXPECT_GE(compare_replicas(folder, hosts.ranks()), 2 * kSteps);
  const auto losses = flow::column(folder.path("both/training.jsonl"), "loss");
  const auto expected = flow::column(folder.path("alone/training.jsonl"), "loss");
  ASSERT_EQ(losses.size(), size_t{kSteps});
  ASSERT_EQ(expected.size(), losses.size());
  for (size_t step = 0; step < losses.size(); ++step)
    EXPECT_NEAR(losses[step], expected[step], 2e-5 * expected[step]) << "step " << step;
}

INSTANTIATE_TEST_SUITE_P(TwoHosts, InstructionSets, ::testing::ValuesIn(kReplicas),
                         [](const auto& replicas) { return replicas.param.name; });

}  // namespace
}  // namespace hosts
