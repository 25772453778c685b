// Defects that other systems had with norms, clipping and accumulated gradients, one case for each.
#include <gtest/gtest.h>

#include "plugins/tensor_training.h"
#include "plugins/toy_training.h"

namespace heddle::tests {
namespace {

Training plain(int microbatches) {
  Training run;
  run.model = odd_llama();
  run.microbatches = microbatches;
  run.steps = 6;
  return run;
}

Training under(const std::string& strategy, const std::string& section, std::vector<Axis> axes,
               int microbatches) {
  Training run = plain(microbatches);
  run.strategy = strategy;
  run.section = section;
  run.axes = std::move(axes);
  return run;
}

// A reduction that scales what is accumulated in place scales it again with each microbatch.
TEST(GradientDefects, AGroupOfOneRankScalesAccumulatedGradientsNoSecondTime) {
  const Outcome want = train(plain(1));
  for (const char* section : {"{}", "gradient_as_bucket_view: true"})
    expect_close(train(under("ddp", section, {{"dp", 1}}, 4)), want);
  for (const char* defer : {"defer_fsdp_grad_sync: true", "defer_fsdp_grad_sync: false"})
    expect_close(train(under("fsdp2", kFloat + defer, shards(1), 4)), want);
}

// A reduce dtype other than the gradients' must not add what has been added already.
TEST(GradientDefects, AGroupOfOneRankAddsEachMicrobatchOnceInAnotherReduceDtype) {
  const std::string mixed = "mp_policy: {param_dtype: bfloat16, reduce_dtype: float32}\n";
  for (const char* defer : {"defer_fsdp_grad_sync: true", "defer_fsdp_grad_sync: false"}) {
    const Outcome once = train(under("fsdp2", mixed + defer, shards(1), 1)),
                  often = train(under("fsdp2", mixed + defer, shards(1), 4));
    for (size_t step = 0; step < once.norms.size(); ++step)
      EXPECT_NEAR(often.norms[step], once.norms[step], 2e-2 * once.norms[step]);
  }
}

// Gradients of microbatches that are not the last must neither be lost nor reduced twice.
TEST(GradientDefects, HybridShardingAccumulatesEachMicrobatchOnce) {
  const Outcome want = train(plain(1));
  for (const char* defer : {"defer_fsdp_grad_sync: true", "defer_fsdp_grad_sync: false"})
    expect_close(train(under("fsdp2", kFloat + defer, shards(2, 2), 3)), want);
}

// Each parameter alone, so that none can hide in the sum of the others: split ones, and whole ones of which
// every rank of tp has the gradient.
TEST(GradientDefects, EveryParameterCountsOnceInTheNormUnderTensorParallelism) {
  std::vector<std::string> names;
  Training first = four_heads("qwen2");
  first.steps = 1;
  for (const auto& [name, parameter] : train(first).parameters) names.push_back(name);
  for (const std::string& fields : {std::string("{}"), kSequence})
    for (const std::string& name : names) {
      if (name.find("layers.1.") != std::string::npos) continue;  // as layers.0
      SCOPED_TRACE(name + " " + fields);
      Training one = four_heads("qwen2");
      one.steps = 1;
      for (const std::string& other : names)
        if (other != name) one.frozen.push_back(other);
      const double want = train(one).norms[0];
      EXPECT_GT(want, 0.0);
      EXPECT_NEAR(train(over_tp(one, 2, fields)).norms[0], want, 2e-4 * want);
    }
}

// The mean of means weighs a label of a short microbatch more.
TEST(GradientDefects, LabelsWeighTheSameInEveryMicrobatchAndOnEveryRank) {
  const auto labels_in_few = [](Batch& batch, int) {
    const at::Tensor rows = batch.labels.narrow(0, 0, batch.labels.size(0) / 2);
    rows.fill_(Batch::kIgnore);  // half of what a rank has, so the halves differ with the topology
  };
  for (const int microbatches : {1, 3}) {
    Training split = under("ddp", "{}", {{"dp", 2}}, microbatches);
    split.change_batch = [&](Batch& batch, int slice) {
      if (slice % 2 == 0) labels_in_few(batch, slice);
    };
    Training alone = plain(2 * microbatches);
    alone.change_batch = split.change_batch;
    expect_close(train(split), train(alone));
  }
}

}  // namespace
}  // namespace heddle::tests
