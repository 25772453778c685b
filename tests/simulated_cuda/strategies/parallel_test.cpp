// Pipelines, context parallelism, documents, windows and experts on simulated GPUs.
#include <gtest/gtest.h>

#include "plugins/context/over_cp.h"
#include "plugins/moe/model_runs.h"
#include "plugins/moe/runs.h"
#include "plugins/pipelines.h"
#include "simulated_cuda/trainings.h"

namespace heddle::tests {
namespace {

Training few_steps(Training run) {
  run.steps = 3;
  return run;
}

// Six microbatches of two sequences.
Training piped(const std::string& schedule, std::vector<Axis> axes, const std::string& strategy = "single",
               const std::string& section = "{}") {
  Training run = under(strategy, section, std::move(axes));
  run.model.num_hidden_layers = 5;
  run.microbatches = 1;
  run.pipeline.microbatch_size = 2;
  run.pipeline.overlap = true;
  run.make_schedule = [schedule] { return make_schedule(schedule); };
  return run;
}

TEST(SimulatedCudaPipeline, TrainsAsTheCpuByEverySchedule) {
  for (const char* schedule : {"1f1b", "zb1p", "interleaved1f1b", "zbvzerobubble", "dualpipev"}) {
    SCOPED_TRACE(schedule);
    expect_equal_on_gpus(piped(schedule, {{"pp", 2}, {"tp", 1}}));
  }
}

TEST(SimulatedCudaPipeline, TrainsAsTheCpuBesideFsdp2) {
  Training run = piped("1f1b", {{"pp", 2}, {"dp_shard", 2}}, "fsdp2", kFloat);
  run.pipeline.microbatch_size = 1;
  expect_equal_on_gpus(run);
}

Training packed() {
  Training run = small();
  run.change_batch = pack;
  return run;
}

TEST(SimulatedCudaAttention, TrainsDocumentsAsTheCpu) {
  expect_equal_on_gpus(packed());
}

TEST(SimulatedCudaAttention, TrainsAWindowAsTheCpu) {
  Training run = small();
  run.model.sliding_window = 3;
  run.model.slides = {true, false};
  expect_equal_on_gpus(run);
}

TEST(SimulatedCudaAttention, TrainsAsTheCpuUnderContextParallelism) {
  for (const std::string& method : kMethods) {
    SCOPED_TRACE(method);
    expect_equal_on_gpus(over_cp(small(), mesh_of(1, 1, 2), method));
  }
}

TEST(SimulatedCudaAttention, TrainsDocumentsAsTheCpuUnderContextParallelism) {
  for (const std::string method : {"allgather", "ring"}) {
    SCOPED_TRACE(method);
    expect_equal_on_gpus(over_cp(packed(), mesh_of(1, 1, 2), method));
  }
}

TEST(SimulatedCudaExperts, TrainAsTheCpuUnderSingle) {
  expect_equal_on_gpus(few_steps(eight_experts()));
}

TEST(SimulatedCudaExperts, TrainAsTheCpuUnderExpertParallelism) {
  for (const std::string& block : {std::string("{}"), way("alltoall"), way("allgather")}) {
    SCOPED_TRACE(block);
    expect_equal_on_gpus(over_ep(few_steps(eight_experts()), {2}, 2, block));
  }
}

TEST(SimulatedCudaExperts, TrainAsTheCpuComputedAgain) {
  Training run = over_ep(few_steps(eight_experts("qwen2_moe")), {2}, 2);
  run.checkpointing = ActivationCheckpointing::selective;
  expect_equal_on_gpus(run);
}

// Sinks, windows in turn and biases of experts.
TEST(SimulatedCudaExperts, TrainGptOssAsTheCpu) {
  expect_equal_on_gpus(few_steps(gpt_oss()));
}

}  // namespace
}  // namespace heddle::tests
