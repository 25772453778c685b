// Tensor parallelism trains to the numbers of one rank, whatever is split.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <gtest/gtest.h>

#include "lib/run/generate/generate.h"
#include "plugins/tensor_training.h"

namespace heddle::tests {
namespace {

const std::vector<std::string> kEveryWay = {"{}", kSequence, kOverlapped};

void expect_parity(const Training& run, const std::vector<int>& sizes = {2, 4}) {
  const Outcome want = train(run);
  for (const int tp : sizes)
    for (const std::string& fields : kEveryWay) {
      SCOPED_TRACE("tp " + std::to_string(tp) + ", " + fields);
      expect_close(train(over_tp(run, tp, fields)), want);
    }
}

TEST(Tensor, EqualsOneRankForLlama) {
  expect_parity(four_heads());
}

TEST(Tensor, EqualsOneRankForQwen2WithItsBiases) {
  expect_parity(four_heads("qwen2"));
}

TEST(Tensor, EqualsOneRankForQwen3WithItsHeadNorms) {
  expect_parity(four_heads("qwen3"));
}

TEST(Tensor, EqualsOneRankWithTiedEmbeddings) {
  Training run = four_heads();
  run.model.tie_word_embeddings = true;
  expect_parity(run);
}

TEST(Tensor, EqualsOneRankWithBiasesOfEveryLayerAndAPaddingRow) {
  Training run = four_heads();
  run.model.qkv_bias = run.model.output_bias = run.model.mlp_bias = true;
  run.model.pad_token_id = 7;
  expect_parity(run);
}

TEST(Tensor, EqualsOneRankOnThreeRanksThatGetFewerHeads) {
  Training run = four_heads("qwen3");
  run.model.num_attention_heads = 6;
  run.model.num_key_value_heads = 3;
  expect_parity(run, {3});
}

TEST(Tensor, GivesTheSameBitsTwice) {
  for (const std::string& fields : kEveryWay) {
    SCOPED_TRACE(fields);
    Training run = over_tp(four_heads("qwen3"), 4, fields);
    run.steps = 4;
    expect_bit_equal(train(run), train(run));
  }
}

}  // namespace
}  // namespace heddle::tests
