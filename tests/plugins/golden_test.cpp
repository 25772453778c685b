// Losses, gradients and twelve AdamW steps of every family equal those that transformers computed
// (tests/golden/make_golden.py), on one rank and on several.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>

#include "core/parallel/single.h"
#include "heddle/checkpoint/hf_source.h"
#include "heddle/checkpoint/safetensors.h"
#include "heddle/mesh/call.h"
#include "heddle/mesh/device_mesh.h"
#include "heddle/train/step.h"
#include "heddle/transport/threads.h"
#include "plugins/pipelines.h"
#include "plugins/toy_training.h"
#include "tests/core/engine/setups.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kGoldenSteps = 12;

struct Golden {
  explicit Golden(const std::string& name) : directory(fs::path(HEDDLE_SOURCE_DIR) / "tests/golden" / name) {
    const auto json = nlohmann::json::parse(std::ifstream(directory / "golden.json"));
    const int64_t batch = json["batch"], sequence = json["sequence"];
    const auto tokens = json["tokens"].get<std::vector<int64_t>>();
    const at::Tensor rows = at::tensor(tokens, at::kLong).view({kGoldenSteps, batch, sequence + 1});
    for (int64_t step = 0; step < kGoldenSteps; ++step) {
      Batch one;
      one.tokens = rows[step].narrow(1, 0, sequence).contiguous();
      one.labels = rows[step].narrow(1, 1, sequence).contiguous();
      batches.push_back(one);
    }
    loss = json["loss"].get<std::vector<double>>();
    norm = json["grad_norm"].get<std::vector<double>>();
    if (json.contains("auxiliary")) auxiliary = json["auxiliary"].get<std::vector<double>>();
  }
  fs::path directory;
  std::vector<Batch> batches;
  std::vector<double> loss, norm, auxiliary;
};

// The stages of a golden case, with the weights of its files.
Stages stages_of(const Golden& golden, Plan plan, const DeviceMesh& mesh, at::ScalarType dtype = at::kFloat) {
  static std::mutex one_at_a_time;
  std::shared_ptr<const ModelSpec> model;
  {
    const std::lock_guard lock(one_at_a_time);
    model = engine::read_model(golden.directory / "config.json", tests::built_plugins());
  }
  const auto weights = std::make_shared<HfWeights>(golden.directory);
  return parallel::build(model->make_units(at::TensorOptions(at::kMeta).dtype(dtype)), plan, mesh,
                         checkpoint::hf_source(golden.directory, weights, model), 42);
}

// The model of a golden case as one rank trains it.
struct Trained {
  explicit Trained(const Golden& golden, at::ScalarType dtype = at::kFloat) {
    Plan plan;
    plan.strategy = parallel::make_single();
    stages = stages_of(golden, std::move(plan), mesh, dtype);
  }
  AloneRendezvous rendezvous;
  DeviceMesh mesh = mesh::build(std::array<Axis, 1>{Axis{"dp", 1}}, rendezvous, "golden");
  Stages stages;
};

StepConfig adamw() {
  StepConfig config;
  config.optimizer = {1e-3, 0.9, 0.95, 1e-8, 0.1};
  config.max_norm = 1.0;
  return config;
}

class GoldenCase : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenCase, TwelveStepsEqualTransformers) {
  const Golden golden(GetParam());
  Trained model(golden);
  Step step(model.stages, model.mesh, adamw());
  for (int64_t i = 0; i < kGoldenSteps; ++i) {
    const StepReport report = step.run(std::span(&golden.batches[i], 1), 1e-3, 0.1);
    EXPECT_NEAR(report.loss.item<double>(), golden.loss[i], 2e-5 * golden.loss[i]) << "step " << i;
    EXPECT_NEAR(report.grad_norm.item<double>(), golden.norm[i], 2e-4 * golden.norm[i]) << "step " << i;
    const at::Tensor auxiliary = report.side_values.find("moe/aux_loss");
    ASSERT_EQ(auxiliary.defined(), !golden.auxiliary.empty());
    if (auxiliary.defined()) {
      EXPECT_NEAR(auxiliary.item<double>(), golden.auxiliary[i], 2e-5 * golden.auxiliary[i]) << "step " << i;
    }
  }
}

TEST_P(GoldenCase, Bf16IsNearFp32) {
  const Golden golden(GetParam());
  Trained model(golden, at::kBFloat16);
  Step step(model.stages, model.mesh, adamw());
  const StepReport report = step.run(std::span(&golden.batches[0], 1), 1e-3, 0.1);
  EXPECT_NEAR(report.loss.item<double>(), golden.loss[0], 3e-2 * golden.loss[0]);
  EXPECT_NEAR(report.grad_norm.item<double>(), golden.norm[0], 0.1 * golden.norm[0]);
}

INSTANTIATE_TEST_SUITE_P(
    Transformers, GoldenCase,
    ::testing::Values("llama", "llama_odd", "llama_tied", "qwen2", "qwen2_tied", "qwen3", "qwen3_tied",
                      "qwen3_moe", "mixtral", "olmoe", "qwen2_moe", "gpt_oss", "glm4_moe", "minimax_m2",
                      "bailing_moe", "mixtral_window", "qwen2_window", "qwen2_moe_window", "qwen3_moe_window",
                      "deepseek_v3", "deepseek_v2", "glm4_moe_lite", "phi3", "phi3_window", "gemma", "gemma2",
                      "gemma2_untied", "mistral", "ministral3", "gemma3_text", "gemma3_untied", "granite",
                      "olmo2", "starcoder2", "starcoder2_untied", "phi", "glm", "glm4", "seed_oss", "cohere2",
                      "ernie4_5", "gpt2_exact", "gpt2_inner", "baichuan", "qwen3_next", "qwen3_5",
                      "qwen3_5_tied", "qwen3_5_moe", "nemotron_h", "nemotron_h_moe", "nemotron_h_latent",
                      "nemotron_h_mtp", "nemotron_h_mtp_repeated"),
    [](const auto& info) { return info.param; });

// A family on two ranks: rows, layers' insides, or layers are split.
struct OnRanks {
  std::string name, split;
};

class GoldenOnRanks : public ::testing::TestWithParam<OnRanks> {};

std::vector<Axis> axes_of(const std::string& split) {
  if (split == "fsdp2" || split == "ep") return tests::shards(2);
  if (split == "experts") return {{"pp", 1}, {"dp_replicate", 1}, {"dp_shard", 1}, {"cp", 1}, {"tp", 2}};
  if (split == "pp") return {{"pp", 2}, {"tp", 1}};
  return {{"pp", 1}, {"tp", 2}};
}

// "ep": each rank has rows and experts of its own. "experts": all ranks have the same rows.
std::vector<View> views_of(const std::string& split) {
  if (split != "ep" && split != "experts") return {};
  return {{"expert", {"dp", "cp", "tp"}, {{"ep_shard", 1}, {"ep", 2}}}};
}

Plan plan_of(const std::string& split) {
  Plan plan;
  const bool sharded = split == "fsdp2" || !views_of(split).empty();
  plan.strategy = sharded ? tests::make_strategy("fsdp2", tests::kFloat) : parallel::make_single();
  if (split == "tp" || split == "sequence" || split == "experts")
    plan.parallelizers.push_back(
        tests::make_parallelizer("tensor", split == "sequence" ? "{sequence_parallel: true}" : "{}"));
  if (!views_of(split).empty()) plan.parallelizers.push_back(tests::make_parallelizer("moe", "moe: {}"));
  if (split == "pp") {
    plan.schedule = tests::make_schedule("1f1b");
    plan.pipeline.microbatch_size = 1;
  }
  return plan;
}

TEST_P(GoldenOnRanks, EqualTransformers) {
  const Golden golden(GetParam().name);
  const std::string& split = GetParam().split;
  ThreadWorld world(2, std::chrono::minutes(2), Log());
  world.run([&](Rendezvous& rendezvous) {
    const DeviceMesh mesh = mesh::build(axes_of(split), rendezvous, "golden", views_of(split));
    Stages stages = stages_of(golden, plan_of(split), mesh);
    Step step(stages, mesh, adamw());
    for (int64_t i = 0; i < kGoldenSteps; ++i) {
      Batch batch = golden.batches[i];
      if (split == "fsdp2" || split == "ep")
        for (at::Tensor* one : {&batch.tokens, &batch.labels}) *one = one->narrow(0, mesh.rank("world"), 1);
      const StepReport report = step.run(std::span(&batch, 1), 1e-3, 0.1);
      EXPECT_NEAR(report.loss.item<double>(), golden.loss[i], 2e-5 * golden.loss[i]) << "step " << i;
      EXPECT_NEAR(report.grad_norm.item<double>(), golden.norm[i], 2e-4 * golden.norm[i]) << "step " << i;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    Transformers, GoldenOnRanks,
    ::testing::Values(
        OnRanks{"llama", "fsdp2"}, OnRanks{"llama", "tp"}, OnRanks{"llama", "pp"}, OnRanks{"phi3", "fsdp2"},
        OnRanks{"phi3", "tp"}, OnRanks{"phi3", "sequence"}, OnRanks{"phi3", "pp"},
        OnRanks{"phi3_window", "tp"}, OnRanks{"gemma", "fsdp2"}, OnRanks{"gemma2", "fsdp2"},
        OnRanks{"gemma2", "tp"}, OnRanks{"gemma2", "sequence"}, OnRanks{"gemma2_untied", "tp"},
        OnRanks{"gemma2_untied", "pp"}, OnRanks{"mistral", "fsdp2"}, OnRanks{"mistral", "tp"},
        OnRanks{"mistral", "pp"}, OnRanks{"ministral3", "sequence"}, OnRanks{"ministral3", "pp"},
        OnRanks{"gemma3_text", "fsdp2"}, OnRanks{"gemma3_text", "sequence"}, OnRanks{"gemma3_untied", "tp"},
        OnRanks{"gemma3_untied", "pp"}, OnRanks{"granite", "fsdp2"}, OnRanks{"granite", "tp"},
        OnRanks{"granite", "pp"}, OnRanks{"olmo2", "fsdp2"}, OnRanks{"olmo2", "sequence"},
        OnRanks{"olmo2", "pp"}, OnRanks{"starcoder2", "fsdp2"}, OnRanks{"starcoder2", "sequence"},
        OnRanks{"starcoder2_untied", "pp"}, OnRanks{"phi", "fsdp2"}, OnRanks{"phi", "sequence"},
        OnRanks{"phi", "pp"}, OnRanks{"glm", "fsdp2"}, OnRanks{"glm", "tp"}, OnRanks{"glm", "pp"},
        OnRanks{"glm4", "tp"}, OnRanks{"seed_oss", "fsdp2"}, OnRanks{"seed_oss", "tp"},
        OnRanks{"seed_oss", "pp"}, OnRanks{"cohere2", "fsdp2"}, OnRanks{"cohere2", "sequence"},
        OnRanks{"ernie4_5", "fsdp2"}, OnRanks{"ernie4_5", "sequence"}, OnRanks{"gpt2_exact", "fsdp2"},
        OnRanks{"gpt2_exact", "tp"}, OnRanks{"gpt2_inner", "sequence"}, OnRanks{"gpt2_inner", "pp"},
        OnRanks{"baichuan", "fsdp2"}, OnRanks{"baichuan", "tp"}, OnRanks{"baichuan", "sequence"},
        OnRanks{"baichuan", "pp"}, OnRanks{"qwen3_5", "fsdp2"}, OnRanks{"qwen3_5", "tp"},
        OnRanks{"qwen3_5", "sequence"}, OnRanks{"qwen3_5", "pp"}, OnRanks{"qwen3_5_tied", "tp"},
        OnRanks{"nemotron_h", "fsdp2"}, OnRanks{"nemotron_h", "tp"}, OnRanks{"nemotron_h", "sequence"},
        OnRanks{"nemotron_h", "pp"}, OnRanks{"nemotron_h_moe", "fsdp2"}, OnRanks{"nemotron_h_moe", "tp"},
        OnRanks{"nemotron_h_moe", "pp"}, OnRanks{"nemotron_h_latent", "fsdp2"},
        OnRanks{"nemotron_h_latent", "pp"}, OnRanks{"nemotron_h_mtp", "fsdp2"},
        OnRanks{"qwen3_5_moe", "experts"}, OnRanks{"nemotron_h_moe", "ep"},
        OnRanks{"nemotron_h_moe", "experts"}, OnRanks{"nemotron_h_mtp", "tp"},
        OnRanks{"nemotron_h_mtp_repeated", "fsdp2"}, OnRanks{"nemotron_h_mtp_repeated", "tp"}),
    [](const auto& info) { return info.param.name + "_" + info.param.split; });

// In the files gate and up are one dim.
void expect_near(const at::Tensor& given, const SafetensorsFile& file, const std::string& name,
                 double tolerance) {
  const at::Tensor ours = given.dim() == 4 ? given.flatten(1, 2) : given;
  at::Tensor theirs = at::empty(ours.sizes(), at::kFloat);
  file.read(name, std::vector<int64_t>(ours.dim(), 0), theirs);
  const double scale = theirs.abs().max().item<double>();
  EXPECT_LE((ours.detach() - theirs).abs().max().item<double>(), tolerance * scale) << name;
}

void expect_gradients_of_the_first_step(const std::string& name) {
  const Golden golden(name);
  Trained model(golden);
  ParallelStage& stage = *model.stages[0];
  model.stages.interfaces(0).expect_last_backward();
  SideOutputs sides(model.stages.attached().side_outputs, at::kCPU);
  sides.begin([](LossDivisor) { return 1.0; });
  Batch batch = golden.batches[0];
  batch.side_outputs = &sides;
  const at::Tensor loss = stage.forward({}, batch)[0];
  (loss.sum() / static_cast<double>(batch.labels.numel())).backward();
  stage.finish_gradients();
  const SafetensorsFile theirs(golden.directory / "gradients.safetensors");
  ASSERT_EQ(stage.owned().size(), theirs.tensors().size());
  for (const Shard& shard : stage.owned()) expect_near(shard.tensor.grad(), theirs, shard.name, 2e-5);
}

TEST(Golden, EveryGradientOfTheFirstStepEqualsTransformers) {
  expect_gradients_of_the_first_step("llama");
  expect_gradients_of_the_first_step("qwen3_moe");
}

TEST(Golden, ParametersAfterTwelveStepsEqualTransformers) {
  const Golden golden("llama");
  Trained model(golden);
  Step step(model.stages, model.mesh, adamw());
  for (const Batch& batch : golden.batches) step.run(std::span(&batch, 1), 1e-3, 0.1);
  const SafetensorsFile theirs(golden.directory / "final.safetensors");
  for (const Shard& shard : model.stages[0]->owned()) expect_near(shard.tensor, theirs, shard.name, 2e-4);
}

}  // namespace
}  // namespace heddle
