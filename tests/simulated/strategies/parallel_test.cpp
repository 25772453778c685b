// Pipelines, context parallelism, packed documents, sliding windows and experts on simulated GPUs.
#include <gtest/gtest.h>

#include "simulated/trainings.h"
#include "tests/main/with_all.h"

namespace heddle::tests {
namespace {

HEDDLE_WITH_ALL("SimulatedCudaPipeline.*:SimulatedCudaExperts.*");

// Six microbatches of two sequences.
TEST(SimulatedCudaPipeline, TrainsAsTheCpu) {
  expect_equal_on_gpus(small(5), {"single pp2([1f1b|zb1p|interleaved1f1b|zbvzerobubble|dualpipev]) rows2",
                                  "fsdp2 dp2 pp2(1f1b) rows1"});
}

TEST(SimulatedCudaAttention, TrainsAsTheCpuUnderContextParallelism) {
  expect_equal_on_gpus(small(), {"fsdp2 cp2([allgather|ring|ulysses|ring_ulysses])"});
}

TEST(SimulatedCudaMixers, TrainAsTheCpuUnderContextParallelism) {
  for (const size_t which : {0, 3}) {  // Gated DeltaNet, Mamba-2
    Training run = mixing(kMixing[which]);
    run.microbatches = 2;
    for (const bool packed : {false, true}) {
      if (packed) run.change_batch = pack;
      expect_equal_on_gpus(run, {packed ? "fsdp2 cp2(ring)" : "fsdp2 cp2([allgather|ring_ulysses])[| full]"});
    }
  }
}

TEST(SimulatedCudaAttention, TrainsOverChosenKeysAsTheCpuUnderContextParallelism) {
  Training run = sparse_deepseek();
  run.steps = 3;
  run.microbatches = 2;
  expect_equal_on_gpus(run, {"fsdp2 cp2([allgather|ulysses])"});
}

TEST(SimulatedCudaAttention, TrainsDocumentsAsTheCpu) {
  Training run = small();
  run.change_batch = pack;
  expect_equal_on_gpus(run, {"single", "fsdp2 cp2([allgather|ring])"});
}

TEST(SimulatedCudaAttention, TrainsAWindowAsTheCpu) {
  Training run = small();
  run.model.sliding_window = 3;
  run.model.slides = {true, false};
  expect_equal_on_gpus(run);
}

// GPT-OSS: attention sinks, alternating windows, expert biases.
TEST(SimulatedCudaExperts, TrainAsTheCpu) {
  Training experts = eight_experts(), shared = eight_experts("qwen2_moe"), biased = gpt_oss();
  experts.steps = shared.steps = biased.steps = 3;
  expect_equal_on_gpus(experts, {"single", "fsdp2 dp2 ep2", "fsdp2 dp2 ep2([alltoall|allgather])"});
  expect_equal_on_gpus(shared, {"fsdp2 dp2 ep2 selective"});
  expect_equal_on_gpus(biased);
}

}  // namespace
}  // namespace heddle::tests
