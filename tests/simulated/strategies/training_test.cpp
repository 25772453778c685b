// Strategies on simulated GPUs equal the CPU, without a race, in every execution order.
#include <gtest/gtest.h>

#include "simulated/trainings.h"

namespace heddle::tests {
namespace {

TEST(SimulatedCuda, TrainsAsTheCpuUnderSingleAndDdp) {
  expect_equal_on_gpus(small(),
                       {"single", "ddp([|bucket_cap_mb: 0.002, gradient_as_bucket_view: true]) dp2 calls2"});
}

TEST(SimulatedCuda, TrainsAsTheCpuUnderFsdp2) {
  expect_equal_on_gpus(
      small(),
      {"fsdp2 dp3 calls2", "fsdp2(enable_fsdp2_prefetch: true, reshard_after_forward: true) dp2 calls2",
       "fsdp2(offload_policy: {pin_memory: [true|false]}) dp2 calls2", "fsdp2 dp4 replicas2 calls3"});
}

TEST(SimulatedCuda, TrainsAsTheCpuUnderMegatronsStrategies) {
  const std::string overlap = "overlap_grad_reduce: true, overlap_param_gather: true";
  expect_equal_on_gpus(
      small(), {"megatron_fsdp(zero_dp_strategy: [3|1]) dp2 calls2",
                "megatron(use_distributed_optimizer: true, " + overlap + ", bucket_size: 1000) dp2 calls2",
                "megatron(use_megatron_fsdp: true, data_parallel_sharding_strategy: optim_grads_params[|, " +
                    overlap + "]) dp2 calls2"});
}

TEST(SimulatedCuda, TrainsAsTheCpuUnderTensorParallelism) {
  expect_equal_on_gpus(small(), {"single tp2([sequence|overlapped])", "fsdp2 dp2 tp2(sequence) calls2"});
}

TEST(SimulatedCuda, TrainsAsTheCpuWithActivationCheckpointing) {
  expect_equal_on_gpus(small(), {"[single|fsdp2 dp2] calls2 [full|selective]"});
}

}  // namespace
}  // namespace heddle::tests
