// The SDK's kits on megatron_fsdp and megatron, and several stages of a rank that share a group.
#include <gtest/gtest.h>

#include "heddle/testing/conformance.h"
#include "plugins/megatron_runs.h"
#include "plugins/pipelines.h"

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

TEST(Megatron, EqualsOneRankWithSeveralStagesOnARank) {
  for (const std::string& section :
       {kFlat + "overlap_param_gather: true\nalign_param_gather: true", fsdp("optim_grads"),
        fsdp("optim_grads_params", "overlap_grad_reduce: true\noverlap_param_gather: true")})
    for (const Placement placement : {Placement::loop, Placement::v}) {
      SCOPED_TRACE(section);
      Training run = pipeline("", 2, 2);
      run.strategy = "megatron";
      run.section = section;
      run.axes = {{"pp", 2}, {"dp_replicate", 1}, {"dp_shard", 2}, {"cp", 1}, {"tp", 1}};
      run.make_schedule = made<BreadthFirst>(2, placement);
      expect_close(train(run), alone());
    }
}

// Two runs of one topology.
TEST(Megatron, GivesTheSameBitsTwice) {
  for (Training run : {megatron(3, kFlat), megatron(2, fsdp("optim_grads_params"), 2), mfsdp(3, zero(3))}) {
    run.steps = 6;
    run.microbatches = run.axes.size() == 3 ? 1 : 3;
    if (run.axes.size() != 3 && run.axes[2].size == 3) run.microbatches = 2;
    expect_bit_equal(train(run), train(run));
  }
}

}  // namespace
}  // namespace heddle::tests
