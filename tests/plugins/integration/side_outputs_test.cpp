// Auxiliary losses and metrics on a middle layer: every topology trains and reports like one rank.
#include <gtest/gtest.h>

#include "plugins/megatron_runs.h"
#include "plugins/pipelines.h"
#include "plugins/probe.h"

namespace heddle::tests {
namespace {

Training probed(Training run, ProbeOptions options = {}) {
  run.own_parallelizers = {probe(std::move(options))};
  return run;
}

const Outcome& probed_llama() {
  static const Outcome outcome = train(probed(llama_alone()));
  return outcome;
}

TEST(SideOutputs, ReportAnAuxiliaryLossThatChangesTheTraining) {
  ProbeOptions none;
  none.weight = 0;
  const Outcome plain = train(probed(llama_alone(), none)), &with = probed_llama();
  ASSERT_EQ(with.sides.at("probe/loss").size(), 12u);
  EXPECT_EQ(with.losses[0], plain.losses[0]);  // the main loss is reported separately
  EXPECT_GT(std::abs(with.norms[0] / plain.norms[0] - 1), 0.01);
  EXPECT_GT(std::abs(with.losses[5] - plain.losses[5]), 1e-4);
  EXPECT_LT(with.sides.at("probe/mean").back(), 0.9 * plain.sides.at("probe/mean").back());
  EXPECT_EQ(with.sides.at("probe/tokens")[0], 84);
  const auto& ids = with.sides.at("probe/ids");
  EXPECT_EQ(ids[0] + ids[1] + ids[2], 84);
}

TEST(SideOutputs, EqualOneRankOverMicrobatchesAndUnderEveryStrategy) {
  expect_equal_on(
      probed(llama_alone()),
      {"single calls[1|3][| full| selective]",
       "[megatron_fsdp dp2|megatron dp2|megatron(use_distributed_optimizer: true, overlap_grad_reduce: "
       "true, bucket_size: 1000) dp2|megatron_fsdp(zero_dp_strategy: 3) dp3|ddp dp2|fsdp2 dp3] "
       "calls2[| full]",
       "megatron(use_megatron_fsdp: true, data_parallel_sharding_strategy: optim_grads_params) dp4 "
       "replicas2 calls3[| full]"});
}

ProbeOptions of_token_rows() {
  ProbeOptions options;
  options.axes = {"dp_cp", "tp"};
  return options;
}

TEST(SideOutputs, EqualOneRankUnderTensorParallelism) {
  expect_equal_on(probed(four_heads("qwen3")), {"single tp2"});
  expect_equal_on(probed(four_heads("qwen3"), of_token_rows()),
                  {"[single tp4|fsdp2 dp2 tp2]([sequence|overlapped])"});
}

// The layer is on the first, the second or the only rank, but never on the rank of the main loss.
TEST(SideOutputs, EqualOneRankInPipelines) {
  const Outcome want = train(probed(single_model()));
  const std::vector<std::function<std::unique_ptr<IPipelineSchedule>()>> schedules = {
      [] { return make_schedule("1f1b"); }, made<LateWeights>(0), made<LateWeights>(2),
      made<BreadthFirst>(2, Placement::v), [] { return make_schedule("interleavedzerobubble"); }};
  for (size_t i = 0; i < schedules.size(); ++i)
    for (const std::string& line :
         alternatives("single pp[2|4] [full |]rows" + std::string(i == 0 ? "2 calls2" : "3"))) {
      if (i >= 3 && line.find("pp4") != line.npos) continue;  // seven units
      SCOPED_TRACE("schedule " + std::to_string(i) + " " + line);
      Training run = on(probed(single_model()), line);
      run.make_schedule = schedules[i];
      expect_close(train(run), want);
    }
}

TEST(SideOutputs, EqualOneRankInThreeDimensions) {
  const Training one = probed(four_heads("qwen3", 5), of_token_rows());
  const Outcome want = train(one);
  for (const std::string& line : alternatives("[ddp|fsdp2] dp2 tp2(sequence) pp2")) {
    SCOPED_TRACE(line);
    Training deep = on(one, line);
    deep.make_schedule = made<LateWeights>(1);
    expect_close(train(deep), want);
  }
}

// A mean over each microbatch. All topologies have the same four microbatches.
TEST(SideOutputs, EqualOneRankWhenDividedByMicrobatches) {
  ProbeOptions options;
  options.divisor = LossDivisor::microbatches;
  Training run = single_model();
  run.microbatches = 4;
  expect_equal_on(probed(run, options), {"ddp dp2", "single pp2(1f1b)", "megatron dp2"});
}

// Side outputs replace the sums over data and stages by one sum over the world, and add one collective for
// the maxima. Without side outputs nothing changes.
TEST(SideOutputs, AddAtMostOneCollectiveToAStep) {
  const auto collectives = [](bool with, int steps) {
    Training run = on(single_model(), "ddp dp2 pp2(1f1b)");
    run.steps = steps;
    if (with) run = probed(run);
    std::vector<std::vector<std::string>> events;
    run.events = &events;
    train(run);
    return count(events[0], "all_");
  };
  const int plain = collectives(false, 2) - collectives(false, 1);
  const int with = collectives(true, 2) - collectives(true, 1);
  EXPECT_LE(with, plain + 1);
  EXPECT_GT(plain, 0);
}

TEST(SideOutputs, ReportReducedValuesToParallelizersAtEachUpdate) {
  for (const int ranks : {1, 2}) {
    std::vector<std::shared_ptr<Probe>> probes;
    std::mutex mutex;
    Training run = on(llama_alone(), "ddp dp" + std::to_string(ranks));
    run.steps = 3;
    run.own_parallelizers = {[&] {
      const std::lock_guard lock(mutex);
      return probes.emplace_back(std::make_shared<Probe>(ProbeOptions()));
    }};
    const Outcome outcome = train(run);
    ASSERT_EQ(probes.size(), static_cast<size_t>(ranks));
    for (const auto& each : probes) {
      EXPECT_EQ(each->updates, 3);
      EXPECT_EQ(each->skipped, 0);
      EXPECT_EQ(each->last.sum().item<double>(), 84);  // of all ranks
      EXPECT_EQ(each.use_count(), 1);                  // destroyed with the stages
    }
  }
}

TEST(SideOutputs, RefuseMisuseByName) {
  ProbeOptions options;
  options.axes = {"acme"};
  EXPECT_NE(error_of([&] { train(probed(llama_alone(), options)); }).find("side output 'probe/loss'"),
            std::string::npos);
  Training twice = llama_alone();
  ProbeOptions other;
  other.divisor = LossDivisor::microbatches;
  twice.own_parallelizers = {probe(), probe(other)};
  EXPECT_EQ(error_of([&] { train(twice); }),
            "error[plugin_conflict] side output 'probe/loss': it is declared twice, with different kinds, "
            "divisors, axes, sizes or places to show it\n  hint: give one of the two another name");
}

}  // namespace
}  // namespace heddle::tests
