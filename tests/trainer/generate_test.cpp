// Generation: greedy, sampled, cut to the last tokens, and repeatable.
#include "trainer/models/generate.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <set>

#include "core/checkpoint/folder.h"
#include "trainer/models/make_units.h"

namespace heddle {
namespace {

using testing::error_of;
using testing::Folder;
using Tokens = std::vector<int64_t>;

// Likes the token after the last one, and the one after that a little less.
at::Tensor counting(const Batch& batch) {
  at::Tensor logits = at::full({1, batch.tokens.size(1), 8}, -20.0);
  const int64_t last = batch.tokens[0][-1].item<int64_t>();
  logits[0][-1][(last + 1) % 8] = 2.0;
  logits[0][-1][(last + 2) % 8] = 1.5;
  return logits;
}

TEST(Generate, TakesTheLikeliestTokenAtTemperatureZero) {
  EXPECT_EQ(generate(counting, {5}, 4, {.temperature = 0}, 1), (Tokens{5, 6, 7, 0, 1}));
  EXPECT_EQ(generate(counting, {5}, 3, {.temperature = 1, .top_k = 1}, 1), (Tokens{5, 6, 7, 0}));
}

TEST(Generate, GivesTheSameTokensForTheSameSeedOnly) {
  const Tokens first = generate(counting, {0}, 40, {}, 7);
  EXPECT_EQ(first, generate(counting, {0}, 40, {}, 7));
  EXPECT_NE(first, generate(counting, {0}, 40, {}, 8));
}

TEST(Generate, SamplesAmongTheKLikeliest) {
  const auto flat = [](const Batch& batch) {
    return at::arange(8, at::kFloat).mul(1e-3).expand({1, batch.tokens.size(1), 8});
  };
  const Tokens tokens = generate(flat, {0}, 200, {.temperature = 1, .top_k = 3}, 3);
  EXPECT_EQ(std::set<int64_t>(tokens.begin() + 1, tokens.end()), (std::set<int64_t>{5, 6, 7}));
}

TEST(Generate, ShowsTheModelTheLastTokensOnly) {
  int64_t longest = 0;
  const auto watched = [&](const Batch& batch) {
    longest = std::max(longest, batch.tokens.size(1));
    return counting(batch);
  };
  generate(watched, {0, 1, 2}, 10, {.longest = 4}, 1);
  EXPECT_EQ(longest, 4);
}

TEST(Generate, RunsAChainOfUnits) {
  at::manual_seed(5);
  ModelConfig config;
  config.vocab_size = 11;
  config.hidden_size = 8;
  config.intermediate_size = 12;
  config.num_hidden_layers = 2;
  config.num_attention_heads = config.num_key_value_heads = 2;
  config.head_dim = 4;
  Units units = make_units(config, at::kFloat);
  const Tokens tokens = generate(logits_of(units), {1, 2}, 5, {}, 1);
  ASSERT_EQ(tokens.size(), 7u);
  for (const int64_t token : tokens) EXPECT_TRUE(token >= 0 && token < 11);
}

TEST(Generate, RefusesWhatMakesNoSense) {
  const Folder folder;
  const auto refusal = [&](Tokens prompt, int64_t count, Sampling sampling) {
    return error_of(folder, [&] { generate(counting, prompt, count, sampling, 1); });
  };
  EXPECT_EQ(refusal({}, 1, {}), "error[usage] generate: the prompt is empty; give at least one token");
  EXPECT_EQ(refusal({1}, -1, {}),
            "error[usage] generate: expected a number of new tokens of at least 0, got -1");
  EXPECT_EQ(refusal({1}, 1, {.top_k = -2}), "error[usage] generate: expected a top_k of at least 0, got -2");
  EXPECT_EQ(refusal({1}, 1, {.temperature = -1}),
            "error[usage] generate: expected a temperature of at least 0, got -1.000000");
}

}  // namespace
}  // namespace heddle
