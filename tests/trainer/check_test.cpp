// `heddle check`: one result per file and number of ranks.
#include "heddle/config/node.h"
#include "trainer/checked.h"

namespace heddle {
namespace {

using testing::HasSubstr;

using CheckCommand = tests::Checked;

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> out;
  for (size_t from = 0; from < text.size();) {
    const size_t end = std::min(text.find('\n', from), text.size());
    out.push_back(text.substr(from, end - from));
    from = end + 1;
  }
  return out;
}

TEST_F(CheckCommand, PrintsOneLinePerFileAndWorldSize) {
  const std::string one = file("one.yaml", "distributed: {tp_size: 2}\n");
  const std::string two = file("two.yaml", "distributed: {strategy: nobody}\n");
  cli::CheckCommand command;
  command.configs = {one, two};
  command.world_sizes = {4, 3};
  command.only_distributed = command.json = true;
  EXPECT_EQ(run(command), 2);
  const auto printed = lines(out_);
  ASSERT_EQ(printed.size(), 4u) << out_;
  EXPECT_THAT(printed[0], testing::StartsWith("{\"config\": \"" + one +
                                              "\", \"strategy\": \"fsdp2\", \"world_size\": 4, "));
  EXPECT_EQ(
      printed[1],
      "{\"config\": \"" + one + "\", \"world_size\": 3, \"error\": {\"code\": \"mesh\", \"where\": \"" + one +
          ":1 distributed.tp_size\", \"what\": \"world_size (3) must be divisible by (tp_size * cp_size * "
          "pp_size) (2 * 1 * 1 = 2)\", \"hint\": \"one replica of the model takes 2 ranks: start a "
          "multiple of 2 ranks (--nproc-per-node; heddle check: --world-size), or decrease tp_size or "
          "cp_size "
          "or pp_size until their product divides 3\"}}");
  EXPECT_THAT(printed[2], HasSubstr("\"world_size\": 4, \"error\": {\"code\": \"plugin_missing\""));
  EXPECT_THAT(printed[3], HasSubstr("\"world_size\": 3, \"error\": {\"code\": \"plugin_missing\""));
  EXPECT_THAT(err_, HasSubstr("error[mesh] " + one + ":1 distributed.tp_size: world_size (3)"));
}

TEST_F(CheckCommand, ReportsAnAcceptedRun) {
  cli::CheckCommand command;
  command.configs = {file("run.yaml", "distributed: {strategy: ddp}\n")};
  command.world_sizes = {2};
  EXPECT_EQ(run(command), 0) << error_ << err_;
  EXPECT_THAT(out_, HasSubstr("run.yaml on 2 ranks\nstrategy: ddp\nworld size: 2\nmesh: dp 2\n"));
}

TEST_F(CheckCommand, RefusesAnEmptyFileAsARunWithoutModel) {
  cli::CheckCommand command;
  command.configs = {file("empty.yaml", "")};
  EXPECT_EQ(run(command), 2);
  EXPECT_THAT(err_, HasSubstr("the model is missing"));
}

TEST_F(CheckCommand, ReadsTheWorldSizeFromTheEnvironmentElseOne) {
  cli::CheckCommand command;
  command.configs = {file("run.yaml", "distributed: {}\n")};
  command.json = true;
  EXPECT_EQ(run(command), 0);
  EXPECT_THAT(out_, HasSubstr("\"world_size\": 1,"));
  setenv("WORLD_SIZE", "16", 1);
  EXPECT_EQ(run(command), 0);
  EXPECT_THAT(out_, HasSubstr("\"world_size\": 16,"));
  setenv("WORLD_SIZE", "many", 1);
  EXPECT_EQ(run(command), -1);
  EXPECT_EQ(error_,
            "error[usage] WORLD_SIZE: expected a number of ranks, got 'many'\n  hint: give --world-size N");
}

TEST_F(CheckCommand, AppliesOverrides) {
  cli::CheckCommand command;
  command.configs = {file("run.yaml", "distributed: {tp_size: 2}\n")};
  command.world_sizes = {8};
  command.json = command.only_distributed = true;
  command.overrides = {{"distributed.tp_size", "4"}, {"distributed.strategy", "megatron_fsdp"}};
  EXPECT_EQ(run(command), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("\"shape\": [2, 1, 4]"));
}

TEST_F(CheckCommand, SizesARunWithoutItsDataForElsewhere) {
  cli::CheckCommand command;
  command.elsewhere = command.json = true;
  command.configs = {
      file("run.yaml",
           "model: {config: {model_type: llama, hidden_size: 8, vocab_size: 16, num_attention_heads: 2,\n"
           "                 num_hidden_layers: 1, intermediate_size: 8, tie_word_embeddings: true}}\n"
           "dataset: {file_pattern: none.bin, seq_len: 64}\n"
           "distributed: {strategy: ddp}\noptimizer: {master_weights: true}\n")};
  command.world_sizes = {4};
  ASSERT_EQ(run(command), 0) << err_;
  const int parameters = 16 * 8 + 4 * 8 * 8 + 3 * 8 * 8 + 3 * 8;
  EXPECT_THAT(out_, HasSubstr("\"parameters\": " + std::to_string(parameters) + ", \"active_parameters\": " +
                              std::to_string(parameters) + ", \"experts\": 0, \"experts_per_rank\": 0" +
                              ", \"bytes_per_rank\": {\"parameters\": " +
                              std::to_string(4 * parameters + 96) +  // padding
                              ", \"gradients\": " + std::to_string(4 * parameters) + ", \"optimizer\": " +
                              std::to_string(8 * parameters) + "}, \"steps\": null, \"skipped\": {}}"));
  EXPECT_THAT(out_, HasSubstr("on this machine no file matches 'none.bin': the data is not checked"));
}

// ep 2 x pp 2: each rank has one of the two layers, and half of its experts.
TEST_F(CheckCommand, CountsExpertsPerRankAndActiveParametersPerToken) {
  cli::CheckCommand command;
  command.elsewhere = command.json = true;
  command.configs = {file(
      "run.yaml",
      "model: {config: {model_type: qwen3_moe, hidden_size: 8, vocab_size: 16, num_attention_heads: 2,\n"
      "                 head_dim: 4, num_key_value_heads: 1, num_hidden_layers: 2, intermediate_size: 8,\n"
      "                 moe_intermediate_size: 6, num_experts: 4, num_experts_per_tok: 1}}\n"
      "dataset: {file_pattern: none.bin, seq_len: 64}\n"
      "step_scheduler: {global_batch_size: 8, local_batch_size: 2}\n"
      "distributed: {strategy: fsdp2, ep_size: 2, pp_size: 2, pipeline: {pp_schedule: 1f1b}}\n")};
  command.world_sizes = {4};
  ASSERT_EQ(run(command), 0) << err_ << out_;
  const int attention = 8 * 8 + 2 * 8 * 4 + 8 * 8 + 2 * 4, expert = 3 * 8 * 6;
  const int all = 2 * 16 * 8 + 2 * (attention + 2 * 8 + 4 * 8 + 4 * expert) + 8;
  EXPECT_THAT(out_, HasSubstr("\"parameters\": " + std::to_string(all) +
                              ", \"active_parameters\": " + std::to_string(all - 2 * 3 * expert) +
                              ", \"experts\": 8, \"experts_per_rank\": 2, "));
  command.json = false;
  ASSERT_EQ(run(command), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("experts: 8 in 2 layers; a token uses "));
  EXPECT_THAT(out_, HasSubstr(" parameters; a rank has 2 in 1\n"));
  command.overrides = {{"distributed.etp_size", "2"}};
  command.world_sizes = {8};
  ASSERT_EQ(run(command), 0) << err_;
  EXPECT_THAT(out_, HasSubstr(" parameters; a rank has 2 in 1, 1/2 of each\n"));
}

TEST_F(CheckCommand, RefusesAMissingFileAndAFileThatIsNotYaml) {
  cli::CheckCommand command;
  command.configs = {(folder_ / "none.yaml").string(), file("bad.yaml", "a: [1\n")};
  command.world_sizes = {1, 2};
  command.json = true;
  EXPECT_EQ(run(command), 2);
  const auto printed = lines(out_);
  ASSERT_EQ(printed.size(), 4u);
  EXPECT_THAT(printed[1], HasSubstr("\"world_size\": 2, \"error\": {\"code\": \"config\""));
  EXPECT_THAT(printed[3], HasSubstr("YAML syntax"));
}

TEST_F(CheckCommand, PrintsAllErrorsOfARunAsJson) {
  const std::string run = file("run.yaml", "step_scheduler: {max_stps: 4}\noptimizer: {lr: fast}\n");
  cli::CheckCommand command;
  command.configs = {run};
  command.json = true;
  EXPECT_EQ(this->run(command), 2);
  const Node line = config::read_text(out_, "json");
  ASSERT_NE(line.find("errors"), nullptr) << out_;
  EXPECT_EQ(line.find("errors")->size(), 4u);
  EXPECT_EQ(line.find("errors")->items()[0], *line.find("error"));
  EXPECT_EQ(line.find("error")->find("where")->as_text(), run + ":1 step_scheduler.max_stps");
}

}  // namespace
}  // namespace heddle
