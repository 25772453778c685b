// `heddle check --cost`: cost of a step on a device that is not present.
#include <gmock/gmock.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "model_files.h"
#include "training_files.h"

namespace flow {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

class StepCosts : public ::testing::Test {
 protected:
  const TrainingFiles files_;
};

// 16 tokens per row, 2 rows per microbatch, 8 rows in a global batch.
TEST_F(StepCosts, AreEstimatedForAnAbsentDevice) {
  const Words check = {"check", files_.path("run.yaml"), "--world-size", "2", "--cost"};
  const Outcome text = heddle(plus(check, {"H100"}));
  EXPECT_EQ(text.status, 0) << text.error;
  EXPECT_THAT(text.out, HasSubstr("cost of a step per rank on H100: 2 microbatches, rows of 16 tokens\n"));
  EXPECT_THAT(text.out, HasSubstr(" of 74.51 GiB, of which "));
  EXPECT_THAT(text.out, HasSubstr("at the device's peaks"));
  EXPECT_THAT(text.out, HasSubstr("collectives: dp_shard (2 ranks) "));
  const json gpu = json::parse(heddle(plus(check, {"H100", "--json"})).out)["cost"];
  // 6 operations per weight and token in layers and head; attention has 7 products for pairs of tokens.
  const double weights = 2 * (2 * 24 * 24 + 2 * 8 * 24 + 3 * 24 * 40) + 256 * 24, tokens = 4 * 16;
  const double pairs = 4 * 16 * 17 / 2.0;
  EXPECT_EQ(gpu["product_operations"], 6 * tokens * weights + 2 * 14 * pairs * 24);
  EXPECT_GT(gpu["peak_bytes"], gpu["bytes_before"]);
  const json cpu = json::parse(heddle(plus(check, {"cpu", "--json"})).out)["cost"];
  EXPECT_TRUE(cpu["least_seconds"].is_null());
  EXPECT_EQ(cpu["product_operations"], gpu["product_operations"]);
}

// Units that stay whole need their own bytes, but no buffer of the largest unit.
TEST_F(StepCosts, EqualTheParametersOfUnitsThatStayWhole) {
  const auto cost = [&](const std::string& reshard) {
    return json::parse(
        heddle({"check", files_.path("run.yaml"), "--world-size", "4", "--cost", "H100", "--json", "--model",
                "{config: {model_type: llama, vocab_size: 4096, hidden_size: 64, "
                "intermediate_size: 64, num_hidden_layers: 12, num_attention_heads: 4, "
                "max_position_embeddings: 32}}",
                "--distributed.reshard_after_forward", reshard})
            .out);
  };
  const json whole = cost("false"), freed = cost("true");
  const double more = whole["cost"]["peak_bytes"].get<double>() - freed["cost"]["peak_bytes"].get<double>();
  const double parameters = 4 * whole["parameters"].get<double>();
  EXPECT_LT(more, 1.1 * parameters);
  EXPECT_GT(more, 0.3 * parameters);
}

TEST_F(StepCosts, CountPassesAndMicrobatchesOfAPipeline) {
  const Words check = {
      "check",         files_.path("run.yaml"),
      "--world-size",  "2",
      "--cost",        "H100",
      "--distributed", "{strategy: fsdp2, pp_size: 2, pipeline: {pp_schedule: 1f1b, pp_microbatch_size: 1}}"};
  EXPECT_THAT(heddle(check).out, HasSubstr(": 4 passes of 2 microbatches, rows of 16 tokens\n"));
  const json cost = json::parse(heddle(plus(check, {"--json"})).out)["cost"];
  EXPECT_EQ(cost["passes"], 4);
  EXPECT_EQ(cost["microbatches"], 8);
}

// This machine needs neither the memory nor the data nor the model.
TEST_F(StepCosts, AreEstimatedDespiteWhatThisMachineLacks) {
  const Words check = {"check",    files_.path("run.yaml"), "--dataset.file_pattern",
                       "none.bin", "--dataset.seq_len",     "16"};
  EXPECT_EQ(heddle(check).status, 2);
  const Outcome absent = heddle(plus(check, {"--cost", "H100"}));
  EXPECT_EQ(absent.status, 0) << absent.error;
  EXPECT_THAT(absent.error, HasSubstr("warning: "));
  const Outcome large =
      heddle({"check", files_.path("run.yaml"), "--cost", "H100", "--model",
              "{dtype: bfloat16, config: {model_type: llama, vocab_size: 256, hidden_size: 8192, "
              "intermediate_size: 28672, num_hidden_layers: 2000, num_attention_heads: 64, "
              "max_position_embeddings: 32}}"});
  EXPECT_EQ(large.status, 0) << large.error;
  EXPECT_THAT(large.out, HasSubstr("this does not fit in the device"));
}

// The gated unit between the two products of experts.
TEST_F(StepCosts, CountTheActivationOfExperts) {
  const auto moved = [&](int width) {
    const Outcome outcome = heddle(
        {"check", files_.path("run.yaml"), "--cost", "H100", "--json", "--model",
         "{config: {model_type: mixtral, vocab_size: 64, hidden_size: 8, intermediate_size: " +
             std::to_string(width) +
             ", num_hidden_layers: 1, num_attention_heads: 2, num_local_experts: 2, num_experts_per_tok: 2, "
             "max_position_embeddings: 32}}"});
    return json::parse(outcome.out)["cost"]["bytes_moved"].get<double>();
  };
  // One more column, for 4 microbatches of 64 rows in float32. The forward reads gate and up and writes y;
  // the backward reads them and dy, and writes two gradients and y. Products have additional bytes per
  // column.
  const double column = (moved(2048) - moved(1024)) / 1024;
  EXPECT_GT(column, 4 * 64 * 4 * (3 + 6) + 4 * 64 * 4 * 6);
}

// Every layer of every family computes shapes on meta, forward and backward.
TEST_F(StepCosts, CoverEveryFamily) {
  Words check = {"check",
                 "--cost",
                 "H100",
                 "--json",
                 "--elsewhere",
                 "--dataset.file_pattern",
                 "none.bin",
                 "--dataset.seq_len",
                 "7"};
  std::vector<std::string> families;
  for (const auto& folder : fs::directory_iterator(kGolden)) {
    if (!fs::exists(folder.path() / "config.json")) continue;
    families.push_back(folder.path().filename());
    std::string yaml = read_text(files_.path("run.yaml"));
    const size_t model = yaml.find("model:"), end = yaml.find("\n", yaml.find("dtype:", model)) + 1;
    yaml.replace(model, end - model,
                 "model: {pretrained_model_name_or_path: " + folder.path().string() + "}\n");
    files_.write(families.back() + ".yaml", yaml);
    check.push_back(files_.path(families.back() + ".yaml"));
  }
  const Outcome outcome = heddle(check);
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  std::istringstream lines(outcome.out);
  for (const std::string& family : families) {
    std::string line;
    ASSERT_TRUE(std::getline(lines, line)) << family;
    const json verdict = json::parse(line);
    ASSERT_TRUE(verdict.contains("cost")) << family << line;
    EXPECT_GT(verdict["cost"]["product_operations"], 0) << family;
  }
}

TEST_F(StepCosts, CoverEveryTransform) {
  const double whole = json::parse(
      heddle({"check", files_.path("run.yaml"), "--cost", "H100", "--json"}).out)["cost"]["peak_bytes"];
  for (const Words& section : std::vector<Words>{
           {"--peft", "{dim: 2, use_dora: true}"},
           {"--peft", "{dim: 2}", "--quantization", "{load_in_4bit: true}"},
           {"--peft", "{dim: 2, dropout: 0.5}"},
           {"--fp8", "{enabled: true}", "--model.config.hidden_size", "48"},
           {"--qat", "{enabled: true, fake_quant_after_n_steps: 9, qat_config: {groupsize: 4}}"},
           {"--neftune", "{noise_alpha: 5}"},
           {"--freeze_config", "{patterns: [embed]}"}}) {
    const Outcome outcome =
        heddle(plus({"check", files_.path("run.yaml"), "--cost", "H100", "--json"}, section));
    ASSERT_EQ(outcome.status, 0) << section[1] << outcome.error;
    EXPECT_NE(json::parse(outcome.out)["cost"]["peak_bytes"], whole) << section[1];
  }
}

TEST_F(StepCosts, UseAGivenRowLength) {
  const Outcome given =
      heddle({"check", files_.path("run.yaml"), "--cost", "H100", "--row-length", "12", "--elsewhere",
              "--dataset", "{_target_: squad.make_squad_dataset, dataset_name: nowhere}"});
  EXPECT_EQ(given.status, 0) << given.error;
  EXPECT_THAT(given.out, HasSubstr("rows of 12 tokens"));
}

}  // namespace
}  // namespace flow
