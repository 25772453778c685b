// Generation: greedy and sampled, with and without a cache, beyond the maximum sequence length, and
// repeatable.
#include "lib/run/generate/generate.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>

#include "checkpoint/folder.h"
#include "heddle/model/module_unit.h"
#include "heddle/nn/attention_core.h"
#include "lib/run/generate/kv_cache.h"
#include "tests/llama_model.h"

namespace heddle {
namespace {

using tests::error_of;
using tests::Folder;
using Tokens = std::vector<int64_t>;

// Gives the highest logit to the token after the last one, and a slightly lower logit to the next.
at::Tensor counting_logits(const Batch& batch) {
  at::Tensor logits = at::full({1, batch.tokens.size(1), 8}, -20.0);
  const int64_t last = batch.tokens[0][-1].item<int64_t>();
  logits[0][-1][(last + 1) % 8] = 2.0;
  logits[0][-1][(last + 2) % 8] = 1.5;
  return logits;
}

TEST(Generate, PicksTheMostLikelyTokenAtTemperatureZero) {
  EXPECT_EQ(generate(counting_logits, {5}, 4, {.temperature = 0}, 1), (Tokens{5, 6, 7, 0, 1}));
  EXPECT_EQ(generate(counting_logits, {5}, 3, {.temperature = 1, .top_k = 1}, 1), (Tokens{5, 6, 7, 0}));
}

TEST(Generate, GivesTheSameTokensForTheSameSeedOnly) {
  const Tokens first = generate(counting_logits, {0}, 40, {}, 7);
  EXPECT_EQ(first, generate(counting_logits, {0}, 40, {}, 7));
  EXPECT_NE(first, generate(counting_logits, {0}, 40, {}, 8));
}

TEST(Generate, SamplesFromTheTopK) {
  const auto flat = [](const Batch& batch) {
    return at::arange(8, at::kFloat).mul(1e-3).expand({1, batch.tokens.size(1), 8});
  };
  const Tokens tokens = generate(flat, {0}, 200, {.temperature = 1, .top_k = 3}, 3);
  EXPECT_EQ(std::set<int64_t>(tokens.begin() + 1, tokens.end()), (std::set<int64_t>{5, 6, 7}));
}

TEST(Generate, SamplesFromTheTopP) {
  const auto falling = [](const Batch& batch) {  // 0.5, 0.25, 0.125, ...
    return at::arange(8, at::kFloat).mul(-std::log(2.0)).expand({1, batch.tokens.size(1), 8});
  };
  const auto chosen = [&](double top_p, int64_t top_k) {
    const Sampling sampling{.temperature = 1, .top_k = top_k, .top_p = top_p};
    const Tokens tokens = generate(falling, {0}, 300, sampling, 3);
    return std::set<int64_t>(tokens.begin() + 1, tokens.end());
  };
  EXPECT_EQ(chosen(0.7, 0), (std::set<int64_t>{0, 1}));
  EXPECT_EQ(chosen(0.8, 0), (std::set<int64_t>{0, 1, 2}));
  EXPECT_EQ(chosen(0.8, 2), (std::set<int64_t>{0, 1}));
  EXPECT_EQ(chosen(0.0, 0), (std::set<int64_t>{0}));
}

TEST(Generate, StopsAtAStopTokenAndReportsEachToken) {
  Tokens told;
  const Sampling sampling{.temperature = 0, .stop = {3, 7}};
  const Tokens all =
      generate(counting_logits, {7, 5}, 6, sampling, 1, nullptr, [&](int64_t t) { told.push_back(t); });
  EXPECT_EQ(all, (Tokens{7, 5, 6, 7}));
  EXPECT_EQ(told, (Tokens{6, 7}));
}

TEST(Generate, KeepsTheLastTokensBeyondTheMaximumLength) {
  int64_t longest = 0;
  const auto watched = [&](const Batch& batch) {
    longest = std::max(longest, batch.tokens.size(1));
    return counting_logits(batch);
  };
  generate(watched, {0, 1, 2}, 10, {.longest = 4}, 1);
  EXPECT_EQ(longest, 4);
  longest = 0;
  generate(watched, {0, 1, 2, 3, 4, 5, 6}, 1, {.longest = 4}, 1);
  EXPECT_EQ(longest, 4);
}

ModelConfig small(const std::string& type) {
  ModelConfig config;
  config.vocab_size = 61;
  config.hidden_size = 24;
  config.intermediate_size = 32;
  config.num_hidden_layers = 3;
  config.num_attention_heads = 6;
  config.num_key_value_heads = type == "llama" ? 2 : 3;
  config.head_dim = 8;
  config.initializer_range = 0.5;
  config.max_position_embeddings = 48;
  config.qkv_bias = type == "qwen2";
  config.qk_norm = type == "qwen3";
  config.tie_word_embeddings = type == "qwen3";
  if (type == "gpt_oss") {
    config.num_key_value_heads = 2;
    config.sinks = config.qkv_bias = true;
    config.sliding_window = 5, config.slides = {true, false, true};
  }
  if (type != "deepseek_v3" && type != "glm_moe_dsa") return config;
  config.num_key_value_heads = 6;
  config.latent = decoder::Latent{.rank = 12, .query_rank = 10, .plain = 6, .rotary = 8, .value = 9};
  config.mixture.width = config.mixture.shared_width = 10, config.first_sparse = 1;
  RouterConfig& router = config.mixture.router;
  router.experts = 4, router.rule = {model::RouterRule::Score::sigmoid, 2}, router.correction = true;
  if (type != "glm_moe_dsa") return config;
  // Fewer keys than there are tokens in the end.
  config.latent->indexer = {.heads = 17, .head_dim = 10, .top_k = 5, .interleaved = true};
  config.shared_selections = {false, true, false};
  return config;
}

// Sampling is compared in fp64, because rounding may move a draw between two tokens.
TEST(Generate, GivesTheSameTokensWithACacheUpToTheMaximumLengthAndBeyond) {
  for (const std::string type : {"llama", "qwen2", "qwen3", "deepseek_v3", "gpt_oss", "glm_moe_dsa"})
    for (const Tokens& prompt : {Tokens{5}, Tokens{1, 60, 2, 7, 7, 30}, Tokens(60, 9)})
      for (const double temperature : {0.0, 1.0}) {
        SCOPED_TRACE(type + " " + std::to_string(prompt.size()) + " " + std::to_string(temperature));
        const at::ScalarType dtype = temperature == 0 ? at::kFloat : at::kDouble;
        at::manual_seed(3);
        Units plain = make_units(small(type), dtype);
        at::manual_seed(3);
        Units cached = make_units(small(type), dtype);
        KvCache cache(cached);
        int64_t rows = 0;
        const Logits counted = [&](const Batch& batch) {
          rows += batch.tokens.size(1);
          return logits_of(cached)(batch);
        };
        const Sampling sampling{.temperature = temperature, .longest = 48};
        const Tokens want = generate(logits_of(plain), prompt, 120, sampling, 5);
        EXPECT_EQ(generate(counted, prompt, 120, sampling, 5, &cache), want);
        EXPECT_GT(std::set<int64_t>(want.begin(), want.end()).size(), temperature == 0 ? 1u : 20u);
        // Rows: the prompt, one row per token, and a third of a window each time that the cache is full.
        EXPECT_LE(rows, 60 + 120 + 4 * 16);
      }
}

// A module with only an attention core.
class CoreAlone : public Module {
 public:
  explicit CoreAlone(const AttentionOptions& options) : core(6, options) { add_child("core", core); }
  std::string_view kind() const override { return "core_alone"; }
  AttentionCore core;

 protected:
  at::Tensor forward(at::Tensor x, const Batch&) override { return x; }
};

struct CachedCore {
  explicit CachedCore(const AttentionOptions& options) {
    auto module = std::make_unique<CoreAlone>(options);
    core = &module->core;
    units.push_back(std::make_unique<ModuleUnit>("core", "", std::move(module)));
    cache = std::make_unique<KvCache>(units);
  }
  at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& sinks) {
    Batch batch;
    batch.tokens = at::zeros({1, q.size(0)}, at::kLong);
    return core->attend(q, k, v, batch, sinks);
  }
  Units units;
  AttentionCore* core = nullptr;
  std::unique_ptr<KvCache> cache;
};

// Attention with four query heads and two key heads of width 6, over nine tokens, of which five are the
// prompt.
void expect_cached_attention(const AttentionOptions& options, bool with_sinks, at::ScalarType dtype) {
  at::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  at::manual_seed(11);
  const int64_t width = options.value_dim > 0 ? options.value_dim : 6;
  const at::Tensor q = at::randn({9, 24}, dtype), k = at::randn({9, 12}, dtype),
                   v = at::randn({9, 2 * width}, dtype);
  const at::Tensor sinks = with_sinks ? at::randn({4}, dtype) : at::Tensor();
  const at::Tensor want = model::attend(q, k, v, {1, 9, 6, options, sinks});
  CachedCore cached(options);
  std::vector<at::Tensor> rows{cached.attend(q.narrow(0, 0, 5), k.narrow(0, 0, 5), v.narrow(0, 0, 5), sinks)};
  for (int64_t at = 5; at < 9; ++at)
    rows.push_back(cached.attend(q.narrow(0, at, 1), k.narrow(0, at, 1), v.narrow(0, at, 1), sinks));
  const double off = dtype == at::kBFloat16 ? 2e-2 : 1e-5;
  EXPECT_TRUE(at::allclose(at::cat(rows), want, off, off));
}

TEST(Generate, CachesEveryAttentionVariant) {
  for (const int64_t window : {0, 3, 20})
    for (const double soft_cap : {0.0, 1.5})
      for (const int64_t value_dim : {0, 4})
        for (const bool sinks : {false, true})
          for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
            SCOPED_TRACE(std::to_string(window) + " " + std::to_string(soft_cap) + " " +
                         std::to_string(value_dim) + (sinks ? " sinks " : " ") + c10::toString(dtype));
            AttentionOptions options;
            options.window = window, options.soft_cap = soft_cap, options.value_dim = value_dim;
            expect_cached_attention(options, sinks, dtype);
            options.scale = 0.2;
            expect_cached_attention(options, sinks, dtype);
          }
}

TEST(Generate, RefusesNonCausalAttentionBeforeAnyOutput) {
  AttentionOptions options;
  options.causal = false;
  const Folder folder;
  CachedCore cached(options);
  EXPECT_EQ(error_of(folder, [&] { refuse_not_causal(cached.units); }),
            "error[usage] generate: the attention of 'core' is not causal: an added token would change the "
            "outputs of earlier tokens\n  hint: generate with a causal language model");
}

TEST(Generate, DoesNotCacheModulesThatMixTokens) {
  Units llama = make_units(small("llama"), at::kFloat);
  EXPECT_EQ(KvCache::why_none(llama), "");
  CachedCore undeclared({});
  EXPECT_EQ(KvCache::why_none(undeclared.units),
            "'' (core_alone) does not say whether it computes each token alone");
}

TEST(Generate, RefusesModulesThatCannotBeCached) {
  const Folder folder;
  Units units = make_units(small("llama"), at::kFloat);
  KvCache cache(units);
  Batch batch;
  batch.tokens = at::zeros({2, 3}, at::kLong);
  at::NoGradGuard no_grad;
  EXPECT_EQ(error_of(folder, [&] { logits_of(units)(batch); }),
            "error[plugin_failed] generate: the plugin 'generate' threw in its link around a layer: the "
            "cache takes one sequence and, after the first forward, one token at a time");
}

TEST(Generate, RunsAChainOfUnits) {
  at::manual_seed(5);
  ModelConfig config;
  config.vocab_size = 11;
  config.hidden_size = 8;
  config.intermediate_size = 12;
  config.num_hidden_layers = 2;
  config.num_key_value_heads = config.num_attention_heads = 2;
  config.head_dim = 4;
  Units units = make_units(config, at::kFloat);
  const Tokens tokens = generate(logits_of(units), {1, 2}, 5, {}, 1);
  ASSERT_EQ(tokens.size(), 7u);
  for (const int64_t token : tokens) EXPECT_TRUE(token >= 0 && token < 11);
}

TEST(Generate, RefusesInvalidArguments) {
  const Folder folder;
  const auto refusal = [&](Tokens prompt, int64_t count, Sampling sampling) {
    return error_of(folder, [&] { generate(counting_logits, prompt, count, sampling, 1); });
  };
  EXPECT_EQ(refusal({}, 1, {}), "error[usage] generate: the prompt is empty; it needs at least one token");
  EXPECT_EQ(refusal({1}, -1, {}),
            "error[usage] generate: expected a number of new tokens of at least 0, got -1");
  EXPECT_EQ(refusal({1}, 1, {.top_k = -2}), "error[usage] generate: expected a top_k of at least 0, got -2");
  EXPECT_EQ(refusal({1}, 1, {.temperature = -1}),
            "error[usage] generate: expected a temperature of at least 0, got -1.000000");
  EXPECT_EQ(refusal({1}, 1, {.top_p = 1.5}),
            "error[usage] generate: expected a top_p from 0 to 1, got 1.500000");
}

}  // namespace
}  // namespace heddle
