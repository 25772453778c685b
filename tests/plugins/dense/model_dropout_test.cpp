// Dropout of models: the same numbers on every topology, none outside of training.
#include <gmock/gmock.h>

#include "plugins/whole_runs.h"

namespace heddle::tests {
namespace {

using ::testing::HasSubstr;

constexpr const char* kModelSizes =
    ", vocab_size: 53, max_position_embeddings: 16, hidden_size: 16, intermediate_size: 23, "
    "num_hidden_layers: 3, num_attention_heads: 4, num_key_value_heads: 2";

WholeRuns runs_of(const std::string& keys) {
  WholeRuns runs;
  runs.model = "{" + keys + kModelSizes + "}";
  return runs;
}

TEST(ModelDropout, IsTheSameOnEveryTopology) {
  const WholeRuns runs = runs_of(
      "model_type: starcoder2, attention_dropout: 0.2, residual_dropout: 0.3, embedding_dropout: 0.1");
  const Told none = runs_of("model_type: starcoder2").train({"run", 1, "{strategy: single}"}, "none", 5);
  expect_alike_on(runs, "",
                  {{2, kFsdp2InFp32 + ", activation_checkpointing: full}"},
                   {4, "{strategy: megatron_fsdp, " + kFp32Policy + ", " + two_stages("1f1b") + "}"}});
  EXPECT_NE(read_metrics(runs / "alone/training.jsonl").losses, none.losses);
}

TEST(ModelDropout, RepeatsItsNumbersWhereARunResumes) {
  expect_resumes(runs_of("model_type: phi, resid_pdrop: 0.2, embd_pdrop: 0.1, attention_dropout: 0.3"),
                 {"run", 1, "{strategy: single}"});
}

// Where ranks have parts of the tokens, of the heads, or of the hidden states.
TEST(ModelDropout, IsRefusedWhereRanksHaveParts) {
  const auto refusal = [](const std::string& keys, const std::string& axis) {
    return runs_of(keys).refusal({"run", 2, "{strategy: single, " + axis + ": 2}"});
  };
  EXPECT_THAT(refusal("model_type: olmo2, attention_dropout: 0.2", "tp_size"),
              HasSubstr("dropout of attention under tensor parallelism is not built yet"));
  EXPECT_THAT(refusal("model_type: granite, attention_dropout: 0.2", "cp_size"),
              HasSubstr("dropout of attention under context parallelism is not built yet"));
  EXPECT_THAT(refusal("model_type: phi3, resid_pdrop: 0.2, pad_token_id: 0", "tp_size"),
              HasSubstr("dropout under tensor parallelism is not built yet"));
}

}  // namespace
}  // namespace heddle::tests
