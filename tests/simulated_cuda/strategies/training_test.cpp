// Strategies on simulated GPUs: equal to the CPU's, without a race, in every order of the work.
#include <gtest/gtest.h>

#include "simulated_cuda/trainings.h"

namespace heddle::tests {
namespace {

const std::vector<Axis> kTwo = {{"dp", 2}, {"cp", 1}, {"tp", 1}};  // of megatron_fsdp

TEST(SimulatedCuda, TrainsAsTheCpuUnderSingle) {
  expect_equal_on_gpus(small());
}

TEST(SimulatedCuda, TrainsAsTheCpuUnderDdp) {
  expect_equal_on_gpus(under("ddp", "{}", {{"dp", 2}}));
  expect_equal_on_gpus(under("ddp", "{bucket_cap_mb: 0.002, gradient_as_bucket_view: true}", {{"dp", 2}}));
}

TEST(SimulatedCuda, TrainsAsTheCpuUnderFsdp2) {
  expect_equal_on_gpus(sharded(3));
}

TEST(SimulatedCuda, TrainsAsTheCpuUnderFsdp2WithPrefetching) {
  Training run = sharded(2);
  run.section += "enable_fsdp2_prefetch: true\nreshard_after_forward: true\n";
  expect_equal_on_gpus(run);
}

TEST(SimulatedCuda, TrainsAsTheCpuUnderFsdp2WithOffload) {
  for (const char* pinned : {"true", "false"}) {
    SCOPED_TRACE(pinned);
    Training run = sharded(2);
    run.section += std::string("offload_policy: {pin_memory: ") + pinned + "}\n";
    expect_equal_on_gpus(run);
  }
}

TEST(SimulatedCuda, TrainsAsTheCpuUnderHybridSharding) {
  Training run = sharded(2);
  run.axes = shards(2, 2);
  run.microbatches = 3;
  expect_equal_on_gpus(run);
}

TEST(SimulatedCuda, TrainsAsTheCpuUnderMegatronFsdp) {
  for (const char* zero : {"zero_dp_strategy: 3", "zero_dp_strategy: 1"}) {
    SCOPED_TRACE(zero);
    expect_equal_on_gpus(under("megatron_fsdp", zero, kTwo));
  }
}

TEST(SimulatedCuda, TrainsAsTheCpuUnderMegatronsFlatBuffers) {
  expect_equal_on_gpus(under("megatron",
                             "{use_distributed_optimizer: true, overlap_grad_reduce: true, "
                             "overlap_param_gather: true, bucket_size: 1000}",
                             shards(2)));
}

TEST(SimulatedCuda, TrainsAsTheCpuUnderMegatronsOwnFsdp) {
  const std::string whole = "use_megatron_fsdp: true\ndata_parallel_sharding_strategy: optim_grads_params\n";
  for (const char* more : {"", "overlap_grad_reduce: true\noverlap_param_gather: true\n"}) {
    SCOPED_TRACE(more);
    expect_equal_on_gpus(under("megatron", whole + more, shards(2)));
  }
}

TEST(SimulatedCuda, TrainsAsTheCpuUnderTensorParallelism) {
  expect_equal_on_gpus(over_tp(small(), 2, kSequence));
  expect_equal_on_gpus(over_tp(small(), 2, kOverlapped));
}

TEST(SimulatedCuda, TrainsAsTheCpuUnderTensorParallelismAndFsdp2) {
  Training run = sharded(2);
  run.axes = {{"dp_shard", 2}, {"tp", 2}};
  run.parallelizers = {{"tensor", kSequence}};
  expect_equal_on_gpus(run);
}

TEST(SimulatedCuda, TrainsAsTheCpuWithActivationCheckpointing) {
  for (const auto kind : {ActivationCheckpointing::full, ActivationCheckpointing::selective})
    for (Training run : {small(), sharded(2)}) {
      SCOPED_TRACE(run.strategy + " " + std::to_string(static_cast<int>(kind)));
      run.checkpointing = kind;
      expect_equal_on_gpus(run);
    }
}

}  // namespace
}  // namespace heddle::tests
