// Dropout of models: equal on every topology, and off outside of training.
#include <gmock/gmock.h>

#include "plugins/whole_runs.h"

namespace heddle::tests {
namespace {

using ::testing::HasSubstr;

constexpr const char* kModelSizes =
    ", vocab_size: 53, max_position_embeddings: 16, hidden_size: 16, intermediate_size: 23, "
    "num_hidden_layers: 3, num_attention_heads: 4, num_key_value_heads: 2";

std::string model_of(const std::string& keys) {
  return "{" + keys + kModelSizes + "}";
}

TEST(ModelDropout, IsTheSameOnEveryTopology) {
  WholeRuns runs;
  runs.model = model_of("model_type: starcoder2, tie_word_embeddings: false");
  const Told none = runs.train({"run", 1, "{strategy: single}"}, "none", 5);
  runs.model = model_of(
      "model_type: starcoder2, attention_dropout: 0.2, residual_dropout: 0.3, embedding_dropout: 0.1, "
      "tie_word_embeddings: false");
  expect_alike_on(runs, "",
                  {{2, kFsdp2InFp32 + ", activation_checkpointing: full}"},
                   {2, "{strategy: ddp}"},
                   {2, "{strategy: single, " + two_stages("zb1p") + "}"}});
  EXPECT_NE(read_metrics(runs / "alone/training.jsonl").losses, none.losses);
}

TEST(ModelDropout, RepeatsItsDrawsAfterResuming) {
  WholeRuns runs;
  runs.model = model_of("model_type: phi, resid_pdrop: 0.2, embd_pdrop: 0.1, attention_dropout: 0.3");
  expect_resumes(runs, {"run", 1, "{strategy: single}"});
}

// Ranks hold parts of the tokens, of the heads, or of the hidden states.
TEST(ModelDropout, IsRefusedIfRanksHoldParts) {
  const auto refusal = [](const std::string& keys, const std::string& axis) {
    WholeRuns runs;
    runs.model = model_of(keys);
    return runs.refusal({"run", 2, kFsdp2InFp32 + ", " + axis + ": 2}"});
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
