// The SDK's kits on megatron_fsdp and megatron.
#include <gtest/gtest.h>

#include "heddle/testing/conformance.h"

namespace heddle::tests {

using namespace kits;
using kits::Check;
namespace {

const std::string kWords[] = {
    "strategy: megatron_fsdp",
    "strategy: megatron_fsdp, zero_dp_strategy: 2, fsdp_double_buffer: true",
    "strategy: megatron_fsdp, zero_dp_strategy: 0",
    "strategy: megatron, overlap_grad_reduce: true, num_buckets: 3",
    "strategy: megatron, use_distributed_optimizer: true, overlap_grad_reduce: true, overlap_param_gather: "
    "true, "
    "num_buckets: 4",
    "strategy: megatron, use_megatron_fsdp: true, data_parallel_sharding_strategy: optim_grads_params, "
    "overlap_grad_reduce: true, overlap_param_gather: true"};

TEST(StrategyKits, PassMegatronsStrategiesOnRanksThatDoNotDivideTheSizes) {
  PluginRegistry plugins({HEDDLE_BINARY_DIR "/plugins"});
  for (const std::string& words : kWords) {
    const Report report = check_strategy(words, plugins, {1, 2, 3});
    EXPECT_TRUE(report.passed()) << words << "\n" << report.text();
  }
}

}  // namespace
}  // namespace heddle::tests
