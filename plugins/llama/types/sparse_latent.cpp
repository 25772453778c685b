// DeepSeek-V3.2 and GLM-5: latent attention over keys that an indexer selects.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "../config/read_mixture.h"
#include "heddle/decoder/benchmark.h"
#include "heddle/model/config_keys.h"
#include "latent.h"

namespace heddle::llama {
namespace {

using model::given;
using model::refuse;
using model::size_or;

constexpr const char* kGlm5 = "glm_moe_dsa";

void set_deepseek_v32(ModelConfig& config) {
  set_deepseek_v3(config);
  config.max_position_embeddings = 163840;
  config.latent.indexer = {.top_k = 2048, .heads = 64, .head_dim = 128, .interleaved = false};
}

void set_glm_moe_dsa(ModelConfig& config) {
  set_latent(config);
  set_corrected(config);
  config.latent = {512, 2048, 192, 64, 256, true};
  config.latent.indexer = {.top_k = 2048, .heads = 32, .head_dim = 128, .interleaved = true};
  config.vocab_size = 154880, config.hidden_size = 6144, config.intermediate_size = 12288;
  config.num_hidden_layers = 78, config.num_attention_heads = 64;
  config.max_position_embeddings = 202752, config.rms_norm_eps = 1e-5;
  Mixture& mixture = config.mixture;
  mixture.experts = 256, mixture.top_k = 8, mixture.width = 2048, mixture.shared_width = 1;
  mixture.scale = 2.5, mixture.first_sparse = 3;
}

void read_layers(const Node& keys, ModelConfig& config) {
  const Node* types = given(keys, "mlp_layer_types");
  if (types == nullptr) return read_first_dense(keys, config);
  read_type_list(*types, config);
  check_layers(keys, config, "mlp_layer_types");
}

void read_indexer(const Node& keys, ModelConfig& config) {
  Indexer& indexer = config.latent.indexer;
  indexer.top_k = size_or(keys, "index_topk", indexer.top_k);
  indexer.heads = size_or(keys, "index_n_heads", indexer.heads);
  indexer.head_dim = size_or(keys, "index_head_dim", indexer.head_dim);
  indexer.interleaved = model::boolean_or(keys, "indexer_rope_interleave", indexer.interleaved);
  if (indexer.heads > model::kLargestSize / indexer.head_dim)
    refuse(keys, "index_n_heads " + std::to_string(indexer.heads) + " of index_head_dim " +
                     std::to_string(indexer.head_dim) + " are more than " +
                     std::to_string(model::kLargestSize));
  if (indexer.head_dim < config.latent.rotary)
    refuse(keys, "qk_rope_head_dim " + std::to_string(config.latent.rotary) +
                     " elements of an indexer head are rotated, but index_head_dim " +
                     std::to_string(indexer.head_dim) + " is less");
  if (config.latent.query_rank == 0)
    refuse(keys, "q_lora_rank is missing, but the indexer needs the low-rank queries",
           "set q_lora_rank to a number above 0");
}

void read_sparse(const Node& keys, ModelConfig& config) {
  read_corrected(keys, config);
  if (!config.latent.interleaved)
    refuse(*keys.find("rope_interleave"), "transformers rotates neighboring pairs in " + config.model_type,
           "set rope_interleave: true");
  read_layers(keys, config);
  read_indexer(keys, config);
}

// Parses a word of indexer_types, or a letter of a pattern.
bool is_shared(const Node& at, const std::string& word) {
  if (word == "full" || word == "F") return false;
  if (word == "shared" || word == "S") return true;
  refuse(at, "expected full or shared (in index_topk_pattern also F or S), got '" + word + "'");
}

std::vector<bool> of_words(const Node& node) {
  std::vector<bool> out;
  if (node.is_list()) {
    for (const Node& word : node.items()) out.push_back(is_shared(word, word.as_text()));
    return out;
  }
  for (const char letter : node.as_text()) out.push_back(is_shared(node, std::string(1, letter)));
  return out;
}

// Layer i has its own indexer if index_topk_freq divides i - index_skip_topk_offset + 1, or if that is
// negative.
std::vector<bool> by_frequency(const Node& keys, int64_t layers) {
  const int64_t every = std::max<int64_t>(count_or(keys, "index_topk_freq", 1, model::kMostLayers), 1);
  const int64_t offset = count_or(keys, "index_skip_topk_offset", 2, model::kMostLayers);
  std::vector<bool> out;
  for (int64_t i = 0; i < layers; ++i) out.push_back(std::max<int64_t>(i - offset + 1, 0) % every != 0);
  return out;
}

void read_shared(const Node& keys, ModelConfig& config) {
  const Node *types = given(keys, "indexer_types"), *pattern = given(keys, "index_topk_pattern");
  const Node* words = types != nullptr ? types : pattern;
  if (types != nullptr && pattern != nullptr && of_words(*types) != of_words(*pattern))
    refuse(*pattern, "indexer_types and index_topk_pattern differ", "set only one of the two keys");
  std::vector<bool> shared =
      words != nullptr ? of_words(*words) : by_frequency(keys, config.num_hidden_layers);
  const Node& at = words != nullptr ? *words : keys;
  if (static_cast<int64_t>(shared.size()) != config.num_hidden_layers)
    refuse(at, "expected full or shared for each of " + std::to_string(config.num_hidden_layers) +
                   " layers, got " + std::to_string(shared.size()));
  if (shared.front())
    refuse(at, "the first layer has no previous layer whose selection it could reuse",
           "begin with full, or set index_skip_topk_offset above 0");
  if (std::find(shared.begin(), shared.end(), true) == shared.end()) shared.clear();
  config.latent.indexer.shared = std::move(shared);
}

void read_glm_moe_dsa(const Node& keys, ModelConfig& config) {
  read_sparse(keys, config);
  read_shared(keys, config);
}

void write_sparse(const ModelConfig& config, nlohmann::ordered_json& out) {
  write_corrected(config, out);
  write_type_list(config, out);
  const Indexer& indexer = config.latent.indexer;
  out["index_topk"] = indexer.top_k;
  out["index_n_heads"] = indexer.heads;
  out["index_head_dim"] = indexer.head_dim;
  out["indexer_rope_interleave"] = indexer.interleaved;
}

void write_glm_moe_dsa(const ModelConfig& config, nlohmann::ordered_json& out) {
  write_sparse(config, out);
  std::vector<std::string> types;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
    types.emplace_back(config.latent.indexer.shares(layer) ? "shared" : "full");
  out["indexer_types"] = types;
}

}  // namespace

std::vector<ModelType> sparse_latent_types() {
  return {{"deepseek_v32",
           "DeepseekV32ForCausalLM",
           set_deepseek_v32,
           read_sparse,
           write_sparse,
           {},
           false,
           nullptr,
           decoder::automodel_bias_update()},
          {kGlm5,
           "GlmMoeDsaForCausalLM",
           set_glm_moe_dsa,
           read_glm_moe_dsa,
           write_glm_moe_dsa,
           {},
           false,
           decoder::latent_benchmark_of_keys,
           decoder::automodel_bias_update()}};
}

void add_indexer_keys(std::vector<Key>& keys) {
  constexpr const char* kBoth = "deepseek_v32 glm_moe_dsa";
  const std::vector<Key> own = {
      {{"index_topk", "int", "2048", "1..2^28", "Number of keys that a query attends to.", ""}, kBoth},
      {{"index_n_heads", "int", "64", "1..2^28", "Number of indexer heads. GLM-5: 32.", ""}, kBoth},
      {{"index_head_dim", "int", "128", "qk_rope_head_dim..2^28", "Width of an indexer head.", ""}, kBoth},
      {{"indexer_rope_interleave", "bool", "false", "",
        "Rotate neighboring pairs in the indexer. false: rotate halves. GLM-5: true.", ""},
       kBoth},
      {{"indexer_types", "list or null", "null", "full, shared",
        "Indexer of each layer: full has its own, shared reuses the selection of the previous layer.", ""},
       kGlm5},
      {{"index_topk_pattern", "str, list or null", "null", "F, S", "indexer_types as letters.", ""}, kGlm5},
      {{"index_topk_freq", "int or null", "1", "0..100000",
        "Every Nth layer has its own indexer. Used without indexer_types and index_topk_pattern.", ""},
       kGlm5},
      {{"index_skip_topk_offset", "int or null", "2", "1..100000",
        "Number of first layers that all have their own indexers. index_topk_freq counts from the last of "
        "them.",
        ""},
       kGlm5},
      {{"index_share_for_mtp_iteration", "bool", "false", "",
        "Ignored: multi-token prediction layers are neither built nor read.", ""},
       kGlm5}};
  keys.insert(keys.end(), own.begin(), own.end());
}

}  // namespace heddle::llama
