// Latent attention, and routers whose correction bias moves, train under every strategy and topology as on
// one rank.
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include "plugins/latent_runs.h"
#include "plugins/megatron_runs.h"
#include "plugins/pipelines.h"
#include "plugins/schedules.h"

namespace heddle::tests {
namespace {

const std::string kBias = "model.layers.2.mlp.gate.e_score_correction_bias";

const Outcome& latent_alone() {
  static const Outcome outcome = train(deepseek());
  return outcome;
}

Training latent_across(const std::string& strategy, int ranks) {
  Training run = deepseek();
  run.strategy = strategy;
  run.section = strategy == "fsdp2" ? kFloat : "{}";
  run.axes = strategy == "fsdp2" ? shards(ranks) : std::vector<Axis>{{"dp", ranks}};
  run.microbatches = 4 / ranks;
  return run;
}

TEST(Latent, LearnsAndMovesItsCorrectionBiasByTheLoads) {
  const Outcome& outcome = latent_alone();
  EXPECT_LT(outcome.losses.back(), 0.9 * outcome.losses.front());
  const std::vector<double>& loads = outcome.sides.at("moe/load_2");
  std::vector<double> bias(8, 0.0);
  for (size_t step = 0; step < 12; ++step) {
    double mean = 0;
    for (size_t e = 0; e < 8; ++e) mean += loads[step * 8 + e] / 8;
    EXPECT_EQ(mean, 84 * 3 / 8.0);
    for (size_t e = 0; e < 8; ++e) bias[e] += loads[step * 8 + e] < mean ? 0.03 : -0.03;
  }
  const at::Tensor& got = outcome.parameters.at(kBias);
  for (int64_t e = 0; e < 8; ++e) EXPECT_NEAR(got[e].item<double>(), bias[e], 1e-6) << e;
}

TEST(Latent, KeepsItsCorrectionBiasWithoutARate) {
  Training still = deepseek();
  still.model.mixture.correction_rate = 0;
  still.steps = 3;
  EXPECT_EQ(train(still).parameters.at(kBias).abs().sum().item<double>(), 0);
}

TEST(Latent, EqualsOneRankUnderEveryStrategy) {
  for (const char* strategy : {"ddp", "fsdp2"})
    for (const int ranks : {2, 4}) {
      SCOPED_TRACE(std::string(strategy) + " on " + std::to_string(ranks));
      expect_close(train(latent_across(strategy, ranks)), latent_alone());
    }
  for (const char* fields : {"{}", "{use_distributed_optimizer: true, overlap_grad_reduce: true}"}) {
    SCOPED_TRACE(fields);
    Training flat = megatron(2, fields);
    flat.model = deepseek().model;
    flat.microbatches = 2;
    expect_close(train(flat), latent_alone());
  }
  Training sharded = latent_across("megatron_fsdp", 2);
  sharded.axes = {{"dp", 2}, {"cp", 1}, {"tp", 1}};
  expect_close(train(sharded), latent_alone());
}

TEST(Latent, EqualsOneRankWhereUnitsAreComputedAgain) {
  for (const auto mode : {ActivationCheckpointing::full, ActivationCheckpointing::selective}) {
    Training run = latent_across("fsdp2", 2);
    run.checkpointing = mode;
    expect_close(train(run), latent_alone());
  }
}

TEST(Latent, EqualsOneRankBesideTensorParallelism) {
  expect_close(train(over_tp(deepseek(), 2)), latent_alone());
}

TEST(Latent, StaysWholeUnderTensorParallelism) {
  std::string plan = "{tp_plan: {model.layers.*.self_attn.o_proj: rowwise";
  for (const char* name : {"q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj"})
    plan += ", model.layers.*.self_attn." + std::string(name) + ": colwise";
  const std::string error = error_of([&] { train(over_tp(deepseek(), 2, plan + "}}")); });
  EXPECT_NE(error.find("goes over numbers that the plan splits among ranks"), std::string::npos) << error;
  EXPECT_NE(error.find("leave 'model.layers.0.self_attn' whole"), std::string::npos) << error;
}

TEST(Latent, EqualsOneRankInPipelines) {
  for (const char* schedule : {"1f1b", "zb1p"})
    for (const auto mode : {ActivationCheckpointing::none, ActivationCheckpointing::full}) {
      SCOPED_TRACE(schedule);
      Training run = deepseek();
      run.axes = {{"pp", 2}};
      run.microbatches = 1;
      run.pipeline.microbatch_size = 3;
      run.make_schedule = [schedule] { return make_schedule(schedule); };
      run.checkpointing = mode;
      expect_close(train(run), latent_alone());
    }
}

TEST(Latent, EqualsOneRankUnderContextParallelism) {
  Training one = deepseek();
  one.model.mixture.balance = {model::BalanceLoss::Form::layer, 0.02};
  one.model.mixture.z_loss = 0.01;
  one.change_batch = [](Batch& batch, int) {
    batch.tokens = batch.tokens.narrow(1, 3, 4).contiguous();
    batch.labels = batch.labels.narrow(1, 3, 4).contiguous();
  };
  const Outcome want = train(one);
  for (const auto& [method, cp] :
       {std::pair{"allgather", 2}, {"ring", 2}, {"ulysses", 2}, {"ring_ulysses", 4}}) {
    SCOPED_TRACE(method);
    Training run = one;
    run.strategy = "fsdp2";
    run.section = kFloat;
    run.axes = {{"pp", 1}, {"dp_replicate", 1}, {"dp_shard", 1}, {"cp", cp}, {"tp", 1}};
    run.parallelizers = {{"context", "context: {method: " + std::string(method) + "}"}};
    expect_close(train(run), want);
  }
}

}  // namespace
}  // namespace heddle::tests
