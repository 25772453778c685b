// Losses, gradients and twelve AdamW steps of every family equal those that transformers computed
// (tests/golden/make_golden.py), on one rank and on several.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "heddle/checkpoint/hf_source.h"
#include "heddle/checkpoint/safetensors.h"
#include "heddle/mesh/call.h"
#include "heddle/mesh/device_mesh.h"
#include "heddle/train/step.h"
#include "plugins/topologies.h"

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

// Returns the training of a golden case, with the weights of its files.
tests::Training training_of(const Golden& golden, at::ScalarType dtype = at::kFloat) {
  const std::shared_ptr<const ModelSpec> model =
      engine::read_model(golden.directory / "config.json", tests::built_plugins());
  tests::Training run;
  run.make_units = [=](int) { return model->make_units(at::TensorOptions(at::kMeta).dtype(dtype)); };
  run.values = checkpoint::hf_source(golden.directory, std::make_shared<HfWeights>(golden.directory), model);
  return run;
}

// The model of a golden case as one rank trains it.
struct Trained {
  explicit Trained(const Golden& golden, at::ScalarType dtype = at::kFloat)
      : stages(tests::build(training_of(golden, dtype), mesh)) {}
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

// Number of steps to compare. After eight steps the last bits of products, which differ between processors,
// exceed the tolerance in these models.
int64_t compared_steps(const std::string& name) {
  return name == "kimi_linear" ? 8 : kGoldenSteps;
}

class GoldenCase : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenCase, TwelveStepsEqualTransformers) {
  const Golden golden(GetParam());
  Trained model(golden);
  Step step(model.stages, model.mesh, adamw());
  for (int64_t i = 0; i < compared_steps(GetParam()); ++i) {
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
                      "nemotron_h_mtp", "nemotron_h_mtp_repeated", "deepseek_v32", "glm_moe_dsa", "hy_v3",
                      "ernie4_5_moe", "mimo_v2_flash", "laguna", "laguna_elements", "mistral4", "step3p5",
                      "falcon_h1", "falcon_h1_norm", "kimi_linear", "nemotron_nas", "gemma4_text",
                      "gemma4_untied", "gemma4_moe", "gemma4_shared", "muse_glimmer", "kimi_k3",
                      "kimi_k3_plain", "deepseek_v4", "olmo", "apertus", "nanochat"),
    [](const auto& info) { return info.param; });

// A family on two ranks.
class GoldenOnRanks : public ::testing::TestWithParam<std::string> {};

// "ep": each rank has its own rows and experts. "experts": all ranks have the same rows.
const std::map<std::string, std::string> kSplits = {
    {"fsdp2", "fsdp2 dp2"},           {"tp", "single tp2"},      {"sequence", "single tp2(sequence)"},
    {"pp", "single pp2(1f1b) rows1"}, {"ep", "fsdp2 dp2 ep2"},   {"experts", "fsdp2 tp2(sequence) ep2"},
    {"cp", "fsdp2 cp2(allgather)"},   {"cp3", "fsdp2 cp3(ring)"}};

TEST_P(GoldenOnRanks, EqualTransformers) {
  const size_t space = GetParam().find(' ');
  const std::string name = GetParam().substr(0, space);
  const Golden golden(name);
  const tests::Training run = tests::on(training_of(golden), kSplits.at(GetParam().substr(space + 1)));
  tests::on_ranks(run, [&](Stages& stages, const DeviceMesh& mesh) {
    Step step(stages, mesh, adamw());
    for (int64_t i = 0; i < compared_steps(name); ++i) {
      Batch batch = golden.batches[i];
      const int64_t rows = batch.tokens.size(0) / mesh.size("dp");
      for (at::Tensor* one : {&batch.tokens, &batch.labels})
        *one = one->narrow(0, mesh.rank("dp") * rows, rows);
      const StepReport report = step.run(std::span(&batch, 1), 1e-3, 0.1);
      EXPECT_NEAR(report.loss.item<double>(), golden.loss[i], 2e-5 * golden.loss[i]) << "step " << i;
      EXPECT_NEAR(report.grad_norm.item<double>(), golden.norm[i], 2e-4 * golden.norm[i]) << "step " << i;
    }
  });
}

const char* const kFamiliesAndSplits[] = {"llama fsdp2 tp pp",
                                          "phi3 fsdp2 tp sequence pp",
                                          "phi3_window tp",
                                          "gemma fsdp2 pp",
                                          "gemma2 fsdp2 tp sequence pp",
                                          "gemma2_untied tp pp",
                                          "mistral fsdp2 tp pp",
                                          "ministral3 sequence pp",
                                          "gemma3_text fsdp2 sequence",
                                          "gemma3_untied tp pp",
                                          "granite fsdp2 tp pp",
                                          "olmo fsdp2 tp sequence cp pp",
                                          "apertus fsdp2 tp sequence cp pp",
                                          "nanochat fsdp2 tp sequence cp pp",
                                          "olmo2 fsdp2 sequence pp",
                                          "starcoder2 fsdp2 sequence pp",
                                          "starcoder2_untied pp",
                                          "phi fsdp2 sequence pp",
                                          "glm fsdp2 tp pp",
                                          "glm4 tp",
                                          "seed_oss fsdp2 tp pp",
                                          "cohere2 fsdp2 sequence pp",
                                          "ernie4_5 fsdp2 sequence",
                                          "gpt2_exact fsdp2 tp pp",
                                          "gpt2_inner sequence pp",
                                          "baichuan fsdp2 tp sequence pp",
                                          "qwen3_5 fsdp2 tp sequence pp cp cp3",
                                          "qwen3_next cp cp3",
                                          "qwen3_5_tied tp pp",
                                          "nemotron_h fsdp2 tp sequence pp cp cp3",
                                          "nemotron_h_moe fsdp2 tp pp ep experts cp",
                                          "nemotron_h_latent fsdp2 pp",
                                          "nemotron_h_mtp fsdp2 tp pp",
                                          "qwen3_5_moe experts sequence",
                                          "nemotron_h_mtp_repeated fsdp2 tp pp",
                                          "deepseek_v32 fsdp2 tp pp ep cp cp3 sequence",
                                          "glm_moe_dsa fsdp2 tp pp experts cp sequence",
                                          "hy_v3 experts",
                                          "ernie4_5_moe ep",
                                          "mimo_v2_flash tp pp sequence",
                                          "laguna fsdp2 tp sequence",
                                          "laguna_elements tp",
                                          "mistral4 ep",
                                          "step3p5 tp pp experts",
                                          "falcon_h1 fsdp2 tp sequence pp cp",
                                          "falcon_h1_norm tp sequence cp cp3",
                                          "kimi_linear fsdp2 tp pp ep experts cp cp3 sequence",
                                          "kimi_k3 fsdp2 tp pp ep experts cp cp3 sequence",
                                          "kimi_k3_plain fsdp2 tp pp ep",
                                          "nemotron_nas fsdp2 tp sequence pp",
                                          "gemma4_text fsdp2 tp sequence pp",
                                          "gemma4_untied fsdp2 tp sequence pp",
                                          "gemma4_moe fsdp2 tp pp ep experts sequence",
                                          "gemma4_shared fsdp2 tp pp",
                                          "muse_glimmer fsdp2 tp sequence pp",
                                          "deepseek_v4 fsdp2 tp pp ep experts cp cp3 sequence"};

std::vector<std::string> families_on_ranks() {
  std::vector<std::string> out;
  for (const std::string line : kFamiliesAndSplits) {
    std::istringstream words(line.substr(line.find(' ') + 1));
    for (std::string split; words >> split;) out.push_back(line.substr(0, line.find(' ') + 1) + split);
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(Transformers, GoldenOnRanks, ::testing::ValuesIn(families_on_ranks()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, ' ', '_');
                           return name;
                         });

// Files store gate and up as one dim.
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
  model.stages.front()->expect_last_backward();
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

TEST(Golden, GradientsOfTheFirstStepEqualTransformers) {
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
