// Operations of a benchmark's step by the formulas of NeMo AutoModel, for figures that compare with its own.
#pragma once

#include <cstdint>

#include "heddle/base/export.h"
#include "heddle/config/node.h"
#include "heddle/model/family.h"

namespace heddle {

// The sizes of a config.json, with G samples of S tokens: `layers` of width h, a heads, g key heads, MLPs of
// width f, V words.
struct HEDDLE_API BenchmarkSizes {
  BenchmarkSizes(const Node& config_json, int64_t samples, int64_t tokens);

  Node keys;
  double G, S, layers, h, a, g, f, V;

  double of(const char* key, double otherwise) const;
  // How often the list of a key has the word; `otherwise` without a list.
  double count(const char* key, const char* word, double otherwise) const;
  double head() const { return of("head_dim", h / a); }
  double expert_width() const { return of("moe_intermediate_size", f); }
  double chosen(double otherwise) const { return of("num_experts_per_tok", otherwise); }
  double logits() const { return 6 * G * S * h * V; }
  // A gated MLP on every token.
  double gated(double width) const { return 6 * G * S * 3 * h * width; }
  // Attention with grouped heads, over the causal half of the scores.
  double grouped_attention() const { return 6 * G * S * h * (a * head()) * (2 * g / a + 1 + S / h + 1); }
  // Pairs of queries and keys of a row where each token sees so many before it.
  double pairs_within(double window) const { return window * (window + 1) / 2 + (S - window) * window; }
  // Layers with experts: by mlp_layer_types, by moe_layer_freq, or all but first_k_dense_replace.
  double expert_layers() const;
};

namespace decoder {

// Llama's formula. Heads are as wide as the hidden states.
HEDDLE_API double llama_benchmark(const BenchmarkSizes& sizes);
// Attention with grouped heads, and a gated MLP or experts of moe_intermediate_size in every layer.
HEDDLE_API double grouped_benchmark(const BenchmarkSizes& sizes);
// Latent attention, with or without an indexer. So many layers have experts, each with so many shared
// experts.
HEDDLE_API double latent_benchmark(const BenchmarkSizes& sizes, double shared, double with_experts);
// The same with n_shared_experts in the layers with experts.
HEDDLE_API double latent_benchmark_of_keys(const BenchmarkSizes& sizes);
// Models without a formula of their own: MLPs count as if they had no gate, and where a model has experts the
// later half of the layers counts as having them.
HEDDLE_API double general_benchmark(const BenchmarkSizes& sizes);

}  // namespace decoder
}  // namespace heddle
