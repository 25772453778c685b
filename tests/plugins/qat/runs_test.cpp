// Whole runs with fake quantization on every topology, and the step at which it begins.
#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "heddle/plugin/transform.h"
#include "plugins/lora/peft_units.h"
#include "plugins/topologies.h"
#include "plugins/whole_runs.h"

namespace heddle::tests {
namespace {

// 2 divides inputs of 14 and 24, but not of 23.
std::string qat_section(int after, const std::string& more = "groupsize: 2") {
  return "qat: {enabled: true, fake_quant_after_n_steps: " + std::to_string(after) + ", qat_config: {" +
         more + "}}\n";
}

// A model that trains with fake quantization in float64. In float32 some values lie at the border of two
// integers, where the last bit of a sum decides, and topologies sum in different orders.
Training in_double(Training run, const std::string& section) {
  const auto* offered = built_plugins().find<OfferedTransform>("qat");
  const std::shared_ptr<const ITransform> transform =
      offered->make(offered->resolve(config::read_text(section, "run.yaml")).values);
  run.make_units = [model = run.model, transform](int) {
    Units units = make_units(model, at::TensorOptions(at::kMeta).dtype(at::kDouble));
    transform->apply(units, {"run.yaml:2 qat"});
    return units;
  };
  run.steps = 6;
  return run;
}

const std::string kFsdp2InDouble = "fsdp2(mp_policy: {param_dtype: float64, reduce_dtype: float64}) ";

TEST(QatRuns, AreEqualOnEveryTopology) {
  expect_equal_on(
      in_double(four_heads("qwen2", 3),
                "{enabled: true, fake_quant_after_n_steps: 2, qat_config: {groupsize: 2}}"),
      {"ddp dp2", kFsdp2InDouble + "dp2", kFsdp2InDouble + "cp2(allgather)", "megatron_fsdp dp2",
       "megatron dp2", kFsdp2InDouble + "pp2(1f1b) rows1", kFsdp2InDouble + "full pp2(zb1p) rows1"});
}

TEST(QatRuns, EqualOnEveryTopologyForWeightsOnly) {
  Training run = four_heads();
  run.model.hidden_size = 32, run.model.intermediate_size = 64;
  run.model.num_key_value_heads = run.model.num_attention_heads = 4, run.model.head_dim = 8;
  expect_equal_on(in_double(run,
                            "{enabled: true, qat_config: {quantizer_type: int4_weight_only, groupsize: 32, "
                            "inner_k_tiles: 2}}"),
                  {kFsdp2InDouble + "dp2", "single pp2(1f1b) rows1"});
}

TEST(QatRuns, EqualOnEveryTopologyForMixtures) {
  expect_equal_on(
      in_double(eight_experts(), "{enabled: true, fake_quant_after_n_steps: 1, qat_config: {groupsize: 2}}"),
      {kFsdp2InDouble + "dp2 ep2"});
}

// Before quantization begins, a run equals one without it. Afterwards it differs.
TEST(QatRuns, QuantizeFromTheConfiguredStep) {
  WholeRuns runs;
  const Told plain = runs.train({"plain", 1, "{strategy: single}"}, "plain", 5);
  const Told later = runs.train({"later", 1, "{strategy: single}", qat_section(3)}, "later", 5);
  for (const int step : {0, 1, 2}) EXPECT_NEAR(later.losses[step], plain.losses[step], 1e-6) << step;
  EXPECT_GT(std::abs(later.losses[3] - plain.losses[3]), 1e-4);
  const Told never = runs.train({"never", 1, "{strategy: single}", qat_section(50)}, "never", 5);
  EXPECT_NEAR(never.losses[4], plain.losses[4], 1e-6);
  const Told null =
      runs.train({"null", 1, "{strategy: single}",
                  "qat: {enabled: true, fake_quant_after_n_steps: null, quantizer: {groupsize: 2}}\n"},
                 "null", 2);
  EXPECT_EQ(null.losses, runs.train({"now", 1, "{strategy: single}", qat_section(0)}, "now", 2).losses);
}

// The checkpoint after four steps is before, at or after the step at which quantization begins.
TEST(QatRuns, ResumeBitForBitAcrossTheFirstQuantizedStep) {
  for (const int after : {2, 4, 6}) {
    SCOPED_TRACE(after);
    WholeRuns runs;
    expect_resumes(runs, {"run", 2, kFsdp2InFp32 + "}", qat_section(after)},
                   {{"single", 1, "{strategy: single}", qat_section(after)}});
  }
}

// Checkpoints contain the trained weights, without further tensors.
TEST(QatRuns, SaveUnquantizedWeights) {
  WholeRuns runs;
  runs.train({"run", 1, "{strategy: single}", qat_section(0)}, "run", 4);
  runs.train({"plain", 1, "{strategy: single}"}, "plain", 4);
  const auto with = tensors_of(runs / "run/epoch_0_step_3/model"),
             without = tensors_of(runs / "plain/epoch_0_step_3/model");
  ASSERT_EQ(with.size(), without.size());
  EXPECT_EQ(with.begin()->first, without.begin()->first);
}

TEST(QatRuns, ComputeInBfloat16UnderThePolicy) {
  WholeRuns runs;
  const std::string policy = "{strategy: fsdp2, mp_policy: {param_dtype: bfloat16, reduce_dtype: float32}}";
  const Told wide = runs.train({"wide", 2, kFsdp2InFp32 + "}", qat_section(1)}, "wide", 3),
             narrow = runs.train({"narrow", 2, policy, qat_section(1)}, "narrow", 3),
             ddp = runs.train({"ddp", 2, "{strategy: ddp, autocast_dtype: bfloat16}", qat_section(1)}, "ddp",
                              3);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_NE(narrow.losses[i], wide.losses[i]);
    EXPECT_NEAR(narrow.losses[i], wide.losses[i], 1e-2 * wide.losses[i]);
    EXPECT_NEAR(ddp.losses[i], wide.losses[i], 1e-2 * wide.losses[i]);
  }
}

std::string validating(const WholeRuns& runs, const std::string& run) {
  return "model: {config: " + runs.model + "}\n" + qat_section(2) +
         "distributed: {strategy: single}\noptimizer: {lr: 1e-30}\nseed: 5\n" +
         "dataset: {file_pattern: " + (runs / "train.bin").string() + ", seq_len: 7}\n" +
         "validation_dataset: {file_pattern: " + (runs / "train.bin").string() + ", seq_len: 7}\n" +
         "step_scheduler: {global_batch_size: 12, local_batch_size: 3, max_steps: 4, val_every_steps: 1}\n" +
         "checkpoint: {save_consolidated: false, checkpoint_dir: " + (runs / run).string() + "}\n";
}

// A validation uses the model as the next step computes it.
TEST(QatRuns, ValidateWithTheModelOfTheNextStep) {
  WholeRuns runs;
  train_recipe(validating(runs, "run"), 1);
  std::vector<double> losses;
  std::ifstream file(runs / "run/validation.jsonl");
  for (std::string line; std::getline(file, line);) losses.push_back(nlohmann::json::parse(line).at("loss"));
  ASSERT_EQ(losses.size(), 4U);
  EXPECT_GT(std::abs(losses[1] - losses[0]), 1e-5);
  EXPECT_EQ(losses[2], losses[1]);
  EXPECT_EQ(losses[3], losses[1]);
}

}  // namespace
}  // namespace heddle::tests
