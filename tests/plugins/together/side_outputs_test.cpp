// Auxiliary losses and metrics on a middle layer: every topology trains and reports as one rank does.
#include <gtest/gtest.h>

#include "plugins/across.h"
#include "plugins/megatron_runs.h"
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

TEST(SideOutputs, AnAuxiliaryLossChangesTheTrainingAndIsReported) {
  ProbeOptions none;
  none.weight = 0;
  const Outcome plain = train(probed(llama_alone(), none)), &with = probed_llama();
  ASSERT_EQ(with.sides.at("probe/loss").size(), 12u);
  EXPECT_EQ(with.losses[0], plain.losses[0]);  // the main loss is reported alone
  EXPECT_GT(std::abs(with.norms[0] / plain.norms[0] - 1), 0.01);
  EXPECT_GT(std::abs(with.losses[5] - plain.losses[5]), 1e-4);
  EXPECT_LT(with.sides.at("probe/mean").back(), 0.9 * plain.sides.at("probe/mean").back());
  EXPECT_EQ(with.sides.at("probe/tokens")[0], 84);
  const auto& ids = with.sides.at("probe/ids");
  EXPECT_EQ(ids[0] + ids[1] + ids[2], 84);
}

TEST(SideOutputs, EqualOneRankOverMicrobatchesAndCheckpointing) {
  for (const int microbatches : {1, 3})
    for (const auto mode :
         {ActivationCheckpointing::none, ActivationCheckpointing::full, ActivationCheckpointing::selective}) {
      SCOPED_TRACE(std::to_string(microbatches) + " microbatches, mode " +
                   std::to_string(static_cast<int>(mode)));
      Training run = probed(llama_alone());
      run.microbatches = microbatches;
      run.checkpointing = mode;
      expect_close(train(run), probed_llama());
    }
}

TEST(SideOutputs, EqualOneRankUnderEveryStrategy) {
  for (const auto mode : {ActivationCheckpointing::none, ActivationCheckpointing::full}) {
    std::vector<Training> runs = {mfsdp(2, "{}"),
                                  mfsdp(3, zero(3)),
                                  megatron(2, "{}"),
                                  megatron(2, kFlat),
                                  megatron(2, fsdp("optim_grads_params"), 2),
                                  across(llama_alone(), "ddp", {.dp = 2}),
                                  across(llama_alone(), "fsdp2", {.dp = 3})};
    for (Training& run : runs) {
      SCOPED_TRACE(run.strategy + " " + run.section);
      run.microbatches =
          run.section.find("optim_grads_params") == std::string::npos ? 2 : 3;  // of four ranks
      run.checkpointing = mode;
      expect_close(train(probed(run)), probed_llama());
    }
  }
}

TEST(SideOutputs, EqualOneRankUnderTensorParallelism) {
  const Outcome want = train(probed(four_heads("qwen3")));
  expect_close(train(probed(over_tp(four_heads("qwen3"), 2))), want);
  for (const std::string& fields : {kSequence, kOverlapped}) {
    SCOPED_TRACE(fields);
    ProbeOptions options;
    options.axes = {"dp_cp", "tp"};  // token rows
    expect_close(train(probed(over_tp(four_heads("qwen3"), 4, fields), options)), want);
    Training sharded = across(four_heads("qwen3"), "fsdp2", {.dp = 2, .tp = 2});
    sharded.parallelizers = {{"tensor", fields}};
    sharded.microbatches = 3;
    expect_close(train(probed(sharded, options)), want);
  }
}

// The layer is on the first, the second or the only rank; it is never that of the main loss.
TEST(SideOutputs, EqualOneRankInPipelines) {
  const Outcome want = train(probed(single_model()));
  const std::vector<std::function<std::unique_ptr<IPipelineSchedule>()>> schedules = {
      [] { return make_schedule("1f1b"); }, made<LateWeights>(0), made<LateWeights>(2),
      made<BreadthFirst>(2, Placement::v), [] { return make_schedule("interleavedzerobubble"); }};
  for (size_t i = 0; i < schedules.size(); ++i)
    for (const int ranks : {2, 4})
      for (const auto mode : {ActivationCheckpointing::none, ActivationCheckpointing::full}) {
        if (i >= 3 && ranks == 4) continue;  // seven units
        SCOPED_TRACE("schedule " + std::to_string(i) + " on " + std::to_string(ranks) + " ranks");
        Training run = probed(pipeline("", ranks, 3, i == 0 ? 2 : 1));
        if (i == 0) run.pipeline.microbatch_size = 2;
        run.make_schedule = schedules[i];
        run.checkpointing = mode;
        expect_close(train(run), want);
      }
}

TEST(SideOutputs, EqualOneRankInThreeDimensions) {
  Training run = four_heads("qwen3");
  run.model.num_hidden_layers = 5;
  run.microbatches = 1;
  const Outcome want = train(probed(run));
  ProbeOptions options;
  options.axes = {"dp_cp", "tp"};
  run.parallelizers = {{"tensor", kSequence}};
  for (const char* strategy : {"ddp", "fsdp2"}) {
    SCOPED_TRACE(strategy);
    Training deep = staged(across(run, strategy, {.dp = 2, .tp = 2, .pp = 2}), "1f1b");
    deep.make_schedule = made<LateWeights>(1);
    expect_close(train(probed(deep, options)), want);
  }
}

// A mean over each microbatch; microbatches are the same four in each topology.
TEST(SideOutputs, ALossDividedByMicrobatchesEqualsOneRank) {
  ProbeOptions options;
  options.divisor = LossDivisor::microbatches;
  Training run = single_model();
  run.microbatches = 4;
  const Outcome want = train(probed(run, options));
  Training two = across(single_model(), "ddp", {.dp = 2});
  two.microbatches = 2;
  expect_close(train(probed(two, options)), want);
  expect_close(train(probed(pipeline("1f1b", 2, 3), options)), want);
  Training averaged = megatron(2, "{}");
  averaged.model = run.model;
  averaged.microbatches = 2;
  expect_close(train(probed(averaged, options)), want);
}

// With side outputs one sum over the world takes the place of those over data and stages, and one more
// collective finds the maxima; without them everything is as it was.
TEST(SideOutputs, AddAtMostOneCollectiveToAStep) {
  const auto collectives = [](bool with, int steps) {
    Training run = staged(across(single_model(), "ddp", {.dp = 2, .pp = 2}), "1f1b");
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

TEST(SideOutputs, ParallelizersHearOfEachUpdateWithTheReducedValues) {
  for (const int ranks : {1, 2}) {
    std::vector<std::shared_ptr<Probe>> probes;
    std::mutex mutex;
    Training run = across(llama_alone(), "ddp", {.dp = ranks});
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
      EXPECT_EQ(each.use_count(), 1);                  // it went with the stages
    }
  }
}

TEST(SideOutputs, MisuseIsRefusedByName) {
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
