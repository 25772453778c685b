// Distillation: curves of transformers' models (tests/golden/make_distill.py) on every topology, contents of
// checkpoints and exports, and refusals.
#include <gmock/gmock.h>

#include <cmath>

#include "heddle/checkpoint/safetensors.h"
#include "plugins/distill/distill_runs.h"

namespace heddle::tests {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

void expect_golden(const DistillRuns& runs, const std::string& run, const std::string& name) {
  const nlohmann::json& golden = runs.golden()["cases"][name];
  const auto lines = lines_of(runs / (run + "/training.jsonl"));
  ASSERT_THAT(lines, SizeIs(5)) << run;
  const auto expect_near = [&](const nlohmann::json& line, const std::string& key, double wanted, double by) {
    EXPECT_NEAR(line.at(key).get<double>(), wanted, by * std::abs(wanted))
        << run << " " << name << " " << key;
  };
  for (size_t step = 0; step < lines.size(); ++step) {
    expect_near(lines[step], "loss", golden["loss"][step], 2e-5);
    expect_near(lines[step], "kd_loss", golden["kd_loss"][step], 2e-5);
    expect_near(lines[step], "ce_loss", golden["ratio"] == 1.0 ? 0.0 : golden["ce_loss"][step].get<double>(),
                2e-5);
    expect_near(lines[step], "grad_norm", golden["grad_norm"][step], 2e-4);
  }
  const auto validation = lines_of(runs / (run + "/validation.jsonl"));
  ASSERT_THAT(validation, SizeIs(3)) << run;  // also at the steps of checkpoints
  EXPECT_EQ(validation.back().at("step"), 4) << run;
  expect_near(validation.back(), "loss", golden["validation"]["loss"], 2e-5);
  expect_near(validation.back(), "kd_loss", golden["validation"]["kd_loss"], 2e-5);
}

TEST(Distillation, EqualsTheCurvesOfTransformers) {
  const DistillRuns runs;
  for (const std::string name : {"half", "warm", "all", "none"}) {
    runs.train({"one", 1, "{strategy: single}", runs.keys(name)}, name);
    expect_golden(runs, name, name);
  }
}

TEST(Distillation, GivesOneCurveOnEveryTopology) {
  const DistillRuns runs;
  const std::vector<Topology> topologies = {
      {"ddp", 2, "{strategy: ddp}"},
      {"fsdp2", 2, "{strategy: fsdp2, " + kFp32Policy + "}"},
      {"four", 4, "{strategy: fsdp2, " + kFp32Policy + "}"},
      {"recomputed", 2, "{strategy: fsdp2, activation_checkpointing: true, " + kFp32Policy + "}"},
      {"tp", 2, "{strategy: single, tp_size: 2}"},
      {"sp", 2, "{strategy: fsdp2, tp_size: 2, sequence_parallel: true, " + kFp32Policy + "}"},
      {"cp", 2, "{strategy: fsdp2, cp_size: 2, " + kFp32Policy + "}"},
  };
  for (Topology topology : topologies) {
    topology.more = runs.keys("warm");
    runs.train(topology, topology.name);
    expect_golden(runs, topology.name, "warm");
  }
}

// The first and the last stage each have a copy of the teacher's embedding.
TEST(Distillation, PassesATiedTeacherThroughPipelines) {
  const DistillRuns runs;
  for (const std::string schedule : {"gpipe", "interleaved1f1b"}) {
    const std::string distributed =
        "{strategy: single, pp_size: 2, pipeline: {pp_microbatch_size: 1, "
        "pp_schedule: " +
        schedule + "}}";
    runs.train({schedule, 2, distributed, runs.keys("warm")}, schedule);
    expect_golden(runs, schedule, "warm");
  }
}

// The teacher's hidden states are sent between stages.
TEST(Distillation, PassesThroughPipelines) {
  DistillRuns runs;
  runs.local_batch_size = 2;
  const std::string more =
      "teacher_model: {config: {model_type: llama, vocab_size: 64, hidden_size: 24, intermediate_size: 28, "
      "num_hidden_layers: 3, num_attention_heads: 4, num_key_value_heads: 2, initializer_range: 0.5}}\n"
      "kd_ratio: 0.7\nkd_loss_fn: {temperature: 2.5}\n";
  runs.train({"one", 1, "{strategy: single}", more}, "one");
  const Told one = read_metrics(runs / "one/training.jsonl");
  ASSERT_THAT(one.losses, SizeIs(5));
  const auto pipeline = [](const std::string& words) {
    return "pp_size: 2, pipeline: {pp_microbatch_size: 1, " + words + "}}";
  };
  const std::vector<Topology> topologies = {
      {"gpipe", 2, "{strategy: single, " + pipeline("pp_schedule: gpipe")},
      {"1f1b", 2, "{strategy: single, " + pipeline("pp_schedule: 1f1b")},
      {"zero_bubble", 2, "{strategy: single, " + pipeline("pp_schedule: zb1p")},
      {"interleaved", 2, "{strategy: single, " + pipeline("pp_schedule: interleaved1f1b")},
      {"fsdp2", 4, "{strategy: fsdp2, " + kFp32Policy + ", " + pipeline("pp_schedule: 1f1b")},
  };
  for (Topology topology : topologies) {
    topology.more = more;
    runs.train(topology, topology.name);
    const Told two = read_metrics(runs / (topology.name + "/training.jsonl"));
    SCOPED_TRACE(topology.name);
    expect_alike(two, one);
    EXPECT_NEAR(lines_of(runs / (topology.name + "/validation.jsonl")).back()["kd_loss"].get<double>(),
                lines_of(runs / "one/validation.jsonl").back()["kd_loss"].get<double>(), 1e-4);
  }
}

TEST(Distillation, IsIndependentOfTheBlockSize) {
  const DistillRuns runs;
  for (const std::string size : {"1", "5"}) {
    runs.train({"one", 1, "{strategy: single}", runs.keys("warm", ", chunk_size: " + size)}, "one" + size);
    expect_golden(runs, "one" + size, "warm");
    runs.train({"tp", 2, "{strategy: single, tp_size: 2}", runs.keys("warm", ", chunk_size: " + size)},
               "two" + size);
    expect_golden(runs, "two" + size, "warm");
  }
}

// A head with an adapter passes logits to the loss. Models with random weights, on one rank and on two.
TEST(Distillation, TrainsAnAdapterOfTheHead) {
  DistillRuns runs;
  runs.checkpoint = "save_consolidated: false";
  const std::string more = runs.keys("half") + "peft: {target_modules: ['*'], dim: 3, alpha: 6}\n";
  runs.train({"one", 1, "{strategy: single}", more}, "one");
  runs.train({"tp", 2, "{strategy: single, tp_size: 2}", more}, "tp");
  runs.train({"fsdp2", 2, "{strategy: fsdp2, " + kFp32Policy + "}", more}, "fsdp2");
  const Told one = read_metrics(runs / "one/training.jsonl");
  ASSERT_THAT(one.losses, SizeIs(5));
  EXPECT_NEAR(one.losses[0], runs.golden()["cases"]["half"]["loss"][0].get<double>(), 1e-4);
  for (const std::string run : {"tp", "fsdp2"})
    expect_alike(read_metrics(runs / (run + "/training.jsonl")), one);
  for (const auto& [name, tensor] : tensors_of(runs / "one/epoch_0_step_4/model"))
    EXPECT_THAT(name, HasSubstr("lora_"));
}

TEST(Distillation, KeepsTheTeachersDtype) {
  const DistillRuns runs;
  const std::string keys =
      "teacher_model: {pretrained_model_name_or_path: " + (kGolden / "llama_tied").string() +
      ", torch_dtype: bfloat16}\n";
  runs.train({"one", 1, "{strategy: single}", keys}, "one");
  runs.train({"fsdp2", 2, "{strategy: fsdp2, mp_policy: {param_dtype: null, reduce_dtype: float32}}", keys},
             "fsdp2");
  const Told one = read_metrics(runs / "one/training.jsonl"),
             two = read_metrics(runs / "fsdp2/training.jsonl");
  ASSERT_THAT(one.losses, SizeIs(5));
  ASSERT_THAT(two.losses, SizeIs(5));
  const double exact = runs.golden()["cases"]["half"]["loss"][0];
  EXPECT_NEAR(one.losses[0], exact, 0.02 * exact);
  EXPECT_NE(one.losses[0], exact);
  for (size_t i = 0; i < 5; ++i) EXPECT_NEAR(two.losses[i], one.losses[i], 2e-5 * one.losses[i]);
}

TEST(Distillation, SavesAndExportsOnlyTheStudent) {
  DistillRuns runs;
  runs.checkpoint = "save_consolidated: final";
  const Topology topology = {"fsdp2", 2, "{strategy: fsdp2, " + kFp32Policy + "}", runs.keys("half")};
  runs.train(topology, "straight", 4);
  const auto saved = tensors_of(runs / "straight/epoch_0_step_3/model");
  for (const auto& [name, tensor] : saved) EXPECT_THAT(name, Not(HasSubstr("teacher")));
  const HfWeights student(kGolden / "llama"), exported(runs / "straight/epoch_0_step_3/model/consolidated");
  EXPECT_EQ(exported.names(), student.names());
  runs.train(topology, "resumed", 2);
  runs.checkpoint = "save_consolidated: final, restore_from: LATEST";
  runs.train(topology, "resumed", 4);
  EXPECT_EQ(checksums_of(runs / "resumed/epoch_0_step_3"), checksums_of(runs / "straight/epoch_0_step_3"));
}

}  // namespace
}  // namespace heddle::tests
