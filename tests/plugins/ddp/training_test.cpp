// Training with ddp equals `single`, reduces in buckets, and refuses axes that it does not support.
#include <gtest/gtest.h>

#include "plugins/toy_training.h"

namespace heddle::tests {
namespace {

Training single() {
  Training run;
  run.model = odd_llama();
  return run;
}

Training replicas(int ranks, const std::string& section = "{}") {
  Training run = single();
  run.strategy = "ddp";
  run.section = section;
  run.axes = {{"dp", ranks}};
  return run;
}

TEST(Ddp, EqualsSingleOnOneTwoAndFourRanks) {
  const Outcome want = train(single());
  for (const int ranks : {1, 2, 4})
    for (const char* section : {"{}", "gradient_as_bucket_view: true", "bucket_cap_mb: 0.001"}) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks, " + section);
      expect_close(train(replicas(ranks, section)), want);
    }
}

TEST(Ddp, SumsGradientsOncePerStep) {
  std::vector<std::vector<std::string>> events;
  Training run = replicas(2);
  run.microbatches = 3;
  run.steps = 1;
  run.events = &events;
  train(run);
  std::erase(events[0], "all_reduce dp 4");  // counts of tokens and microbatches
  std::erase(events[0], "all_reduce dp 1");  // the loss
  EXPECT_EQ(count(events[0], "all_reduce"), 1);
}

TEST(Ddp, MakesManyBucketsInReverseOrderWhenTheyAreSmall) {
  std::vector<std::vector<std::string>> events;
  Training run = replicas(2, "bucket_cap_mb: 0");  // one bucket per parameter
  run.steps = 1;
  run.events = &events;
  const Outcome out = train(run);
  std::vector<std::string> sums;
  for (const std::string& event : events[0])
    if (event.rfind("all_reduce", 0) == 0 && event != "all_reduce dp 1" && event != "all_reduce dp 4")
      sums.push_back(event);
  ASSERT_EQ(sums.size(), out.parameters.size());
  EXPECT_EQ(sums.front(), "all_reduce dp " + std::to_string(53 * 14 + 1));  // lm_head and its flag
  EXPECT_EQ(sums.back(), "all_reduce dp " + std::to_string(53 * 14 + 1));   // the embedding
  EXPECT_EQ(count(events[0], "all_reduce"), count(events[1], "all_reduce"));
}

TEST(Ddp, RefusesUnsupportedAxes) {
  const Needs needs = make_strategy("ddp", "{}")->needs();
  EXPECT_EQ(needs.axes, (std::vector<std::string>{"pp", "dp", "tp"}));
  EXPECT_EQ(needs.axes_when_used, (std::vector<std::string>{"pp", "tp"}));
  std::vector<std::string> refusals;
  for (const Refusal& refusal : needs.refuses) refusals.push_back(refusal.axis + ": " + refusal.text);
  EXPECT_EQ(refusals, (std::vector<std::string>{"cp: ddp does not support context parallelism"}));
}

}  // namespace
}  // namespace heddle::tests
