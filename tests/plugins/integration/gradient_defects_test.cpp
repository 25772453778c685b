// Defects that other systems had in norms, clipping and accumulated gradients, one test for each.
#include <gtest/gtest.h>

#include "plugins/topologies.h"

namespace heddle::tests {
namespace {

Training plain(int microbatches) {
  Training run;
  run.model = odd_llama();
  run.microbatches = microbatches;
  run.steps = 6;
  return run;
}

// A reduction that scales accumulated gradients in place would scale them again with each microbatch. With
// replicas, gradients of earlier microbatches must neither be lost nor reduced twice.
TEST(GradientDefects, ScalesAndReducesAccumulatedGradientsOnce) {
  expect_equal_on(plain(1), {"ddp(gradient_as_bucket_view: [false|true]) dp1 calls4",
                             "fsdp2(defer_fsdp_grad_sync: [false|true]) [dp1 calls4|dp4 replicas2 calls3]"});
}

// Gradients must not be added twice if the reduce dtype differs from the gradients' dtype.
TEST(GradientDefects, AddsEachMicrobatchOnceInAnotherReduceDtypeOnOneRank) {
  for (const std::string& half : alternatives("fsdp2(" + kBfloat16 + ", defer_fsdp_grad_sync: [false|true])"))
    expect_equal_on(on(plain(1), half), {half + " calls4"}, [](const Outcome& often, const Outcome& once) {
      for (size_t step = 0; step < once.norms.size(); ++step)
        EXPECT_NEAR(often.norms[step], once.norms[step], 2e-2 * once.norms[step]);
    });
}

// Checks each parameter separately, so that errors cannot cancel: split parameters, and whole ones whose
// gradient every rank of tp has.
TEST(GradientDefects, CountsEveryParameterOnceInTheNormUnderTensorParallelism) {
  std::vector<std::string> names;
  Training first = four_heads("qwen2");
  first.steps = 1;
  for (const auto& [name, parameter] : train(first).parameters) names.push_back(name);
  for (const std::string& name : names) {
    if (name.find("layers.1.") != std::string::npos) continue;  // equal to layers.0
    SCOPED_TRACE(name);
    Training one = four_heads("qwen2");
    one.steps = 1;
    for (const std::string& other : names)
      if (other != name) one.frozen.push_back(other);
    expect_equal_on(one, {"single tp2([|sequence])"}, [](const Outcome& got, const Outcome& want) {
      EXPECT_GT(want.norms[0], 0.0);
      EXPECT_NEAR(got.norms[0], want.norms[0], 2e-4 * want.norms[0]);
    });
  }
}

// A mean of means would give labels of a short microbatch a larger weight.
TEST(GradientDefects, WeightsLabelsEquallyInEveryMicrobatchAndOnEveryRank) {
  const auto labels_in_few = [](Batch& batch, int) {
    const at::Tensor rows = batch.labels.narrow(0, 0, batch.labels.size(0) / 2);
    rows.fill_(Batch::kIgnore);  // half of a rank's labels, so the halves depend on the topology
  };
  for (const int microbatches : {1, 3}) {
    Training split = on(plain(1), "ddp dp2 calls" + std::to_string(microbatches));
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
