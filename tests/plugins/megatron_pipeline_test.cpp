// megatron inside pipelines and beside tensor parallelism, with whole and split backwards.
#include <gtest/gtest.h>

#include "plugins/megatron_runs.h"
#include "plugins/pipelines.h"
#include "plugins/tensor_training.h"

namespace heddle::tests {
namespace {

const std::vector<std::string> kSections = {
    "overlap_grad_reduce: true\nbucket_size: 2000",
    kFlat + "overlap_param_gather: true\nalign_param_gather: true",
    "use_megatron_fsdp: true\ndata_parallel_sharding_strategy: optim_grads",
    "use_megatron_fsdp: true\ndata_parallel_sharding_strategy: optim_grads_params\noverlap_grad_reduce: "
    "true\n"
    "overlap_param_gather: true"};

Training one_rank() {
  Training run = four_heads("qwen3");
  run.model.num_hidden_layers = 5;
  run.microbatches = 1;
  return run;
}

const Outcome& wanted() {
  static const Outcome outcome = train(one_rank());
  return outcome;
}

// [pp, dp, tp]; rows of a microbatch are 1.
Training piped(const std::string& section, int dp, int tp) {
  Training run = one_rank();
  run.strategy = "megatron";
  run.section = section;
  run.axes = {{"pp", 2}, {"dp_replicate", 1}, {"dp_shard", dp}, {"cp", 1}, {"tp", tp}};
  if (tp > 1) run.parallelizers = {{"tensor", kSequence}};
  run.pipeline.microbatch_size = 1;
  run.make_schedule = [] { return make_schedule("1f1b"); };
  return run;
}

TEST(Megatron, EqualsOneRankInAPipeline) {
  for (const std::string& section : kSections) {
    SCOPED_TRACE(section);
    expect_close(train(piped(section, 2, 1)), wanted());
    Training twice = piped(section, 2, 1);
    twice.microbatches = 2;
    expect_close(train(twice), wanted());
  }
}

TEST(Megatron, EqualsOneRankInThreeDimensions) {
  for (const std::string& section : kSections) {
    SCOPED_TRACE(section);
    expect_close(train(piped(section, 2, 2)), wanted());
  }
}

TEST(Megatron, EqualsOneRankWhereTheScheduleSplitsTheBackward) {
  for (const std::string& section : kSections)
    for (const char* more : {"", "\ndelay_wgrad_compute: true"}) {
      SCOPED_TRACE(section + more);
      Training run = piped(section + more, 2, 1);
      run.make_schedule = made<LateWeights>(1);
      expect_close(train(run), wanted());
    }
}

// By hand, on one stage: inputs of two microbatches, then the weights of both.
TEST(Megatron, TakesWeightGradientsInAnyOrder) {
  for (const std::string& section :
       {std::string("calculate_per_token_loss: true"), kFlat + "calculate_per_token_loss: true",
        fsdp("optim_grads_params", "overlap_grad_reduce: true\ncalculate_per_token_loss: true")})
    for (const char* order : {"F0 F1 I0 I1 W0 W1", "F0 I0 F1 W0 B1", "F0 B0 F1 I1 W1"}) {
      SCOPED_TRACE(section + ", " + order);
      Training whole = llama_alone();
      whole.microbatches = 4;
      whole.order = "F0 B0 F1 B1 F2 B2 F3 B3";
      Training run = megatron(2, section);
      run.microbatches = 2;
      run.order = order;
      expect_same(gradients(run), gradients(whole));
    }
}

}  // namespace
}  // namespace heddle::tests
