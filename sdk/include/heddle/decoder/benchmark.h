// Floating-point operations of a benchmark step by NeMo AutoModel's formulas, for comparable figures.
#pragma once

#include <cstdint>

#include "heddle/base/export.h"
#include "heddle/config/node.h"
#include "heddle/model/family.h"

namespace heddle {

// Sizes from a config.json, with G samples of S tokens: `layers` of width h with a heads, g key-value heads
// and MLPs of width f; vocabulary size V.
struct HEDDLE_API BenchmarkSizes {
  BenchmarkSizes(const Node& config_json, int64_t samples, int64_t tokens);

  Node keys;
  double G, S, layers, h, a, g, f, V;

  double of(const char* key, double otherwise) const;
  // Returns how often the list at a key contains the word, or `otherwise` without a list.
  double count(const char* key, const char* word, double otherwise) const;
  double head() const { return of("head_dim", h / a); }
  double expert_width() const { return of("moe_intermediate_size", f); }
  double chosen(double otherwise) const { return of("num_experts_per_tok", otherwise); }
  double logits() const { return 6 * G * S * h * V; }
  // A gated MLP on every token.
  double gated(double width) const { return 6 * G * S * 3 * h * width; }
  // Attention with grouped heads, over the causal half of the scores.
  double grouped_attention() const { return 6 * G * S * h * (a * head()) * (2 * g / a + 1 + S / h + 1); }
  // Query-key pairs of a row with a sliding window.
  double pairs_within(double window) const { return window * (window + 1) / 2 + (S - window) * window; }
  // Number of layers with experts: by mlp_layer_types, by moe_layer_freq, or all except
  // first_k_dense_replace.
  double expert_layers() const;
};

namespace decoder {

// Llama's formula, in which the heads have the hidden size as total width.
HEDDLE_API double llama_benchmark(const BenchmarkSizes& sizes);
// Attention with grouped heads, and in every layer a gated MLP or experts of moe_intermediate_size.
HEDDLE_API double grouped_benchmark(const BenchmarkSizes& sizes);
// Latent attention, with or without an indexer. with_experts: number of layers with experts. shared: shared
// experts in each of these layers.
HEDDLE_API double latent_benchmark(const BenchmarkSizes& sizes, double shared, double with_experts);
// latent_benchmark() with n_shared_experts in the layers with experts.
HEDDLE_API double latent_benchmark_of_keys(const BenchmarkSizes& sizes);
// The formula for models without their own: MLPs count as ungated, and in a model with experts the second
// half of the layers counts as having them.
HEDDLE_API double general_benchmark(const BenchmarkSizes& sizes);

}  // namespace decoder
}  // namespace heddle
