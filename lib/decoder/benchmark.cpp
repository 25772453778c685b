// FLOP formulas that several families share.
#include "heddle/decoder/benchmark.h"

#include <algorithm>

#include "heddle/model/config_keys.h"

namespace heddle {

BenchmarkSizes::BenchmarkSizes(const Node& config_json, int64_t samples, int64_t tokens)
    : keys(config_json), G(static_cast<double>(samples)), S(static_cast<double>(tokens)) {
  layers = of("num_hidden_layers", 0);
  h = of("hidden_size", 1);
  a = of("num_attention_heads", 1);
  g = of("num_key_value_heads", a);
  f = of("intermediate_size", 0);
  V = of("vocab_size", 0);
}

double BenchmarkSizes::of(const char* key, double otherwise) const {
  const Node* found = model::given(keys, key);
  const bool number =
      found != nullptr && (found->kind() == Node::Kind::integer || found->kind() == Node::Kind::real);
  return number ? found->as_real() : otherwise;
}

double BenchmarkSizes::count(const char* key, const char* word, double otherwise) const {
  const Node* words = model::given(keys, key);
  if (words == nullptr || !words->is_list()) return otherwise;
  return static_cast<double>(std::count(words->items().begin(), words->items().end(), Node::text(word)));
}

double BenchmarkSizes::expert_layers() const {
  const double otherwise = layers - of("first_k_dense_replace", 0);
  const Node* frequency = model::given(keys, "moe_layer_freq");
  if (frequency == nullptr || !frequency->is_list()) return count("mlp_layer_types", "sparse", otherwise);
  double out = 0;
  for (const Node& one : frequency->items()) out += one.as_real() != 0 ? 1 : 0;
  return count("mlp_layer_types", "sparse", out);
}

namespace decoder {
namespace {

// Projections per token, and the causal half of the scores. With an indexer: the scores of index_topk keys,
// whatever the length, and the indexer's scores of all pairs.
double latent_attention(const BenchmarkSizes& m) {
  const double nope = m.of("qk_nope_head_dim", 0), rope = m.of("qk_rope_head_dim", 0),
               v = m.of("v_head_dim", 0), kv = m.of("kv_lora_rank", 0), q = m.of("q_lora_rank", 0);
  const double queries = q > 0 ? m.h * q + q * m.a * (nope + rope) : m.h * m.a * (nope + rope);
  const double weights = queries + m.h * rope + m.h * kv + kv * m.a * (nope + v) + v * m.a * m.h;
  const double chosen = m.of("index_topk", 0), heads = m.of("index_n_heads", 0),
               dim = m.of("index_head_dim", 0);
  const double keys = chosen > 0 ? chosen : m.S / 2;
  const double indexer = chosen > 0 ? q * heads * dim + m.h * (dim + heads) + heads * dim * m.S : 0;
  return 6 * m.G * m.S * (weights + m.a * keys * (nope + rope + v) + indexer);
}

}  // namespace

double llama_benchmark(const BenchmarkSizes& m) {
  return m.G * m.S * m.layers * m.h * m.h *
         (12 + 12 * m.g / m.a + 18 * m.f / m.h + 6 * m.S / m.h + 6 * m.V / (m.layers * m.h));
}

double grouped_benchmark(const BenchmarkSizes& m) {
  return m.layers * (m.grouped_attention() + m.gated(m.expert_width() * m.chosen(1))) + m.logits();
}

double latent_benchmark(const BenchmarkSizes& m, double shared, double with_experts) {
  return m.layers * latent_attention(m) + (m.layers - with_experts) * m.gated(m.f) +
         with_experts * m.gated(m.expert_width() * (shared + m.chosen(1))) + m.logits();
}

double latent_benchmark_of_keys(const BenchmarkSizes& m) {
  return latent_benchmark(m, m.of("n_shared_experts", 0), m.expert_layers());
}

double general_benchmark(const BenchmarkSizes& m) {
  const double chosen = m.chosen(0), layers = m.layers;
  const double with_experts = chosen > 0 ? static_cast<double>(static_cast<int64_t>(layers) / 2) : 0;
  const double widths = m.f * (layers - with_experts + chosen * with_experts);
  return 12 * m.G * m.S * layers * m.h * m.h *
         (1 + m.g / m.a + m.S / (2 * m.h) + widths / (layers * m.h) + m.V / (2 * layers * m.h));
}

}  // namespace decoder
}  // namespace heddle
