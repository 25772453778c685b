// `heddle plan`: layouts that fit, their order, and the recipe of the first one.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <string>

#include "training_files.h"

namespace flow {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class Plan : public ::testing::Test {
 protected:
  Words plan(const Words& more) const {
    return plus({"plan", files_.path("run.yaml"), "--seconds", "10", "--model.config.num_attention_heads",
                 "4", "--model.config.num_key_value_heads", "2"},
                more);
  }
  const TrainingFiles files_;
};

TEST_F(Plan, PrintsLayoutsThatFitFastestFirst) {
  const Outcome text = heddle(plan({"--world-size", "4", "--device", "H100", "--top", "3"}));
  EXPECT_EQ(text.status, 0) << text.error;
  EXPECT_THAT(text.out, HasSubstr("4 x H100, 8 samples of 16 tokens per step, memory for tensors: "));
  EXPECT_THAT(text.out, HasSubstr("tokens/s"));
  const json found = json::parse(heddle(plan({"--world-size", "4", "--json"})).out);
  double last = 1e300;
  for (const json& layout : found["layouts"]) {
    EXPECT_LE(layout["tokens_per_second"], last);
    last = layout["tokens_per_second"];
  }
  EXPECT_GT(found["layouts"].size(), 1U);
}

TEST_F(Plan, WritesARecipeThatCheckAccepts) {
  const std::string best = files_.path("best.yaml");
  const Outcome written =
      heddle(plan({"--world-size", "4", "--fix", "tp_size=2", "--fix", "pp_size=2", "--write", best}));
  ASSERT_EQ(written.status, 0) << written.error << written.out;
  EXPECT_THAT(read_text(best), HasSubstr("as heddle plan predicts: "));
  const json verdict = json::parse(heddle({"check", best, "--world-size", "4", "--json"}).out);
  EXPECT_EQ(verdict["sizes"]["tp"], 2) << verdict;
  EXPECT_EQ(verdict["sizes"]["pp"], 2) << verdict;
}

TEST_F(Plan, KeepsFixedSettings) {
  const json found = json::parse(
      heddle(plan({"--world-size", "4", "--fix", "activation_checkpointing=full", "--json"})).out);
  ASSERT_FALSE(found["layouts"].empty());
  for (const json& layout : found["layouts"]) EXPECT_EQ(layout["layout"]["activation_checkpointing"], "full");
  const Outcome wrong = heddle(plan({"--world-size", "4", "--fix", "tp=2"}));
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.error, HasSubstr("'tp' is not a key of a layout"));
}

TEST_F(Plan, ExplainsALayout) {
  const Outcome text = heddle(plan({"--world-size", "2", "--explain", "1"}));
  EXPECT_EQ(text.status, 0) << text.error;
  EXPECT_THAT(text.out, HasSubstr("\n1. fsdp2"));
  EXPECT_THAT(text.out, HasSubstr("computation, "));
}

TEST_F(Plan, ReportsThatNoLayoutFits) {
  const Outcome large =
      heddle(plan({"--world-size", "2", "--device", "RTX-3070-Ti", "--model",
                   "{dtype: bfloat16, config: {model_type: llama, vocab_size: 256, hidden_size: 8192, "
                   "intermediate_size: 28672, num_hidden_layers: 80, num_attention_heads: 64, "
                   "max_position_embeddings: 32}}"}));
  EXPECT_EQ(large.status, 2);
  EXPECT_THAT(large.out, HasSubstr("no layout fits"));
}

TEST_F(Plan, RefusesAWorldSizeThatNoLayoutDivides) {
  const Outcome prime = heddle(plan({"--world-size", "7"}));
  EXPECT_EQ(prime.status, 2);
  EXPECT_THAT(prime.error, HasSubstr("no layout divides 7 ranks and 8 samples a step"));
}

TEST_F(Plan, RefusesAMachineFileWithAWrongKey) {
  files_.write("machine.yaml", "peak_61: 1e12\n");
  const Outcome wrong = heddle(plan({"--world-size", "2", "--machine", files_.path("machine.yaml")}));
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.error, HasSubstr("peak_61"));
}

}  // namespace
}  // namespace flow
