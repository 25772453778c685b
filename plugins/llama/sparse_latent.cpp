// DeepSeek-V3.2 and GLM-5: latent attention over keys that an indexer selects.
#include <algorithm>

#include "families.h"
#include "heddle/decoder/benchmark.h"
#include "latent.h"

namespace heddle::llama {
namespace {

using model::given;
using model::refuse;

// DeepSeek-V3.2, and the base of GLM-5.
struct SparseKeys : CorrectedKeys {
  SparseKeys() { max_position_embeddings = 163840; }

  int64_t index_topk = 2048, index_n_heads = 64, index_head_dim = 128;
  bool indexer_rope_interleave = false;
  std::vector<bool> shared_selections;  // layers that reuse the previous layer's selection; empty: none
};

struct Glm5Keys : SparseKeys {
  Glm5Keys() {
    q_lora_rank = 2048, qk_nope_head_dim = 192, v_head_dim = 256;
    index_n_heads = 32, indexer_rope_interleave = true;
    vocab_size = 154880, hidden_size = 6144, intermediate_size = 12288;
    num_hidden_layers = 78, num_attention_heads = 64;
    max_position_embeddings = 202752, rms_norm_eps = 1e-5, groups = top_groups = 1;
  }
};

// Reads an integer from 0 to the largest number of layers. null means 0.
int64_t count_or(const Node& node, const char* key, int64_t otherwise) {
  const Node* found = node.find(key);
  if (found == nullptr) return otherwise;
  const int64_t count = found->is_null() ? 0 : found->as_integer();
  if (count < 0 || count > model::kMostLayers)
    refuse(*found, "expected a number from 0 to " + std::to_string(model::kMostLayers) + ", got " +
                       std::to_string(count));
  return count;
}

std::string complaint_of_indexer(const SparseKeys& keys) {
  if (keys.index_n_heads > model::kLargestSize / keys.index_head_dim)
    return "index_n_heads " + std::to_string(keys.index_n_heads) + " of index_head_dim " +
           std::to_string(keys.index_head_dim) + " are more than " + std::to_string(model::kLargestSize);
  if (keys.index_head_dim < keys.qk_rope_head_dim)
    return "index_head_dim " + std::to_string(keys.index_head_dim) + " is less than qk_rope_head_dim " +
           std::to_string(keys.qk_rope_head_dim) +
           ", the number of elements of an indexer head that are rotated";
  if (!keys.q_lora_rank)
    return "q_lora_rank is missing, but the indexer needs the low-rank queries: set q_lora_rank to a number "
           "above 0";
  return "";
}

void read_layers(const Node& node, SparseKeys& keys) {
  const Node* types = given(node, "mlp_layer_types");
  if (types != nullptr) {
    read_layer_types(*types, keys);
  } else {
    keys.first_dense = count_or(node, "first_k_dense_replace", *keys.first_dense);
    keys.sparse_every = model::size_or(node, "moe_layer_freq", 1, model::kMostLayers);
  }
  check_sparse_layers(node, keys,
                      types != nullptr ? "mlp_layer_types" : "first_k_dense_replace and moe_layer_freq");
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
std::vector<bool> by_frequency(const Node& node, int64_t layers) {
  const int64_t every = std::max<int64_t>(count_or(node, "index_topk_freq", 1), 1);
  const int64_t offset = count_or(node, "index_skip_topk_offset", 2);
  std::vector<bool> out;
  for (int64_t i = 0; i < layers; ++i) out.push_back(std::max<int64_t>(i - offset + 1, 0) % every != 0);
  return out;
}

void read_shared(const Node& node, Glm5Keys& keys) {
  const Node *types = given(node, "indexer_types"), *pattern = given(node, "index_topk_pattern");
  const Node* words = types != nullptr ? types : pattern;
  if (types != nullptr && pattern != nullptr && of_words(*types) != of_words(*pattern))
    refuse(*pattern, "indexer_types and index_topk_pattern differ", "set only one of the two keys");
  std::vector<bool> shared = words != nullptr ? of_words(*words) : by_frequency(node, keys.num_hidden_layers);
  const Node& at = words != nullptr ? *words : node;
  if (static_cast<int64_t>(shared.size()) != keys.num_hidden_layers)
    refuse(at, "expected full or shared for each of " + std::to_string(keys.num_hidden_layers) +
                   " layers, got " + std::to_string(shared.size()));
  if (shared.front())
    refuse(at, "the first layer has no previous layer whose selection it could reuse",
           "begin with full, or set index_skip_topk_offset above 0");
  keys.shared_selections = std::move(shared);
}

std::vector<Node::Entry> shared_entry(const Glm5Keys& keys) {
  std::vector<Node> types;
  for (const bool shared : keys.shared_selections) types.push_back(Node::text(shared ? "shared" : "full"));
  return {{"indexer_types", Node::list(std::move(types))}};
}

template <class Own>
model::ModelKeys<Own> sparse_keys(const std::string& model_type) {
  auto keys = corrected_keys<Own>(model_type, /*halves=*/false);
  keys.field("index_topk", &SparseKeys::index_topk, "Number of keys that a query attends to.", decoder::kSize)
      .field("index_n_heads", &SparseKeys::index_n_heads, "Number of indexer heads.", decoder::kSize)
      .field("index_head_dim", &SparseKeys::index_head_dim, "Width of an indexer head.", decoder::kSize)
      .field("indexer_rope_interleave", &SparseKeys::indexer_rope_interleave,
             "Rotate neighboring pairs in the indexer. false: rotate halves. No effect on rows of at most "
             "index_topk tokens.")
      .rule(complaint_of_indexer);
  keys.group({{{"first_k_dense_replace", "integer or null", "3", "0..100000", kFirstDense, ""},
               {"moe_layer_freq", "integer", "1", "1..100000", kSparseEvery, ""},
               mlp_layer_types_info()},
              read_layers,
              layer_types_entry});
  return keys;
}

model::ModelKeys<Glm5Keys> glm5_keys() {
  auto keys = sparse_keys<Glm5Keys>("glm_moe_dsa");
  keys.group(
      {{{"indexer_types", "list or null", "null", "full, shared",
         "Indexer of each layer: full has its own, shared reuses the selection of the previous layer.", ""},
        {"index_topk_pattern", "str, list or null", "null", "F, S", "indexer_types as letters.", ""},
        {"index_topk_freq", "integer or null", "1", "0..100000",
         "Every Nth layer has its own indexer. Used without indexer_types and index_topk_pattern.", ""},
        {"index_skip_topk_offset", "integer or null", "2", "1..100000",
         "Number of first layers that all have their own indexers. index_topk_freq counts from the last of "
         "them.",
         ""}},
       read_shared,
       shared_entry});
  return keys.unused("index_share_for_mtp_iteration",
                     "Ignored: multi-token prediction layers are neither built nor read.");
}

decoder::Model sparse_model(const SparseKeys& keys) {
  decoder::Model model = latent_model(keys, true);
  const decoder::Indexer indexer = {.heads = keys.index_n_heads,
                                    .head_dim = keys.index_head_dim,
                                    .top_k = keys.index_topk,
                                    .interleaved = keys.indexer_rope_interleave};
  for (size_t i = 0; i < model.layers.size(); ++i) {
    auto& own = std::get<decoder::Latent>(model.layers[i].mixer).indexer;
    own = indexer;
    own->of_layer_before = i < keys.shared_selections.size() && keys.shared_selections[i];
  }
  return model;
}

decoder::Model glm5_model(const Glm5Keys& keys) {
  return sparse_model(keys);
}

const decoder::Description<SparseKeys>& deepseek_v32() {
  static const decoder::Description<SparseKeys> kDeepSeek = {
      .model_type = "deepseek_v32",
      .architecture = "DeepseekV32ForCausalLM",
      .keys = sparse_keys<SparseKeys>("deepseek_v32"),
      .model = sparse_model,
      .automodel_keys = decoder::automodel_bias_update(),
      .signature = signature<deepseek_v32>};
  return kDeepSeek;
}

const decoder::Description<Glm5Keys>& glm_moe_dsa() {
  static const decoder::Description<Glm5Keys> kGlm = {.model_type = "glm_moe_dsa",
                                                      .architecture = "GlmMoeDsaForCausalLM",
                                                      .keys = glm5_keys(),
                                                      .model = glm5_model,
                                                      .benchmark = decoder::latent_benchmark_of_keys,
                                                      .automodel_keys = decoder::automodel_bias_update(),
                                                      .signature = signature<glm_moe_dsa>};
  return kGlm;
}

}  // namespace

void offer_sparse_latent(Offer& plugin) {
  plugin.model<decoder::Family<deepseek_v32>>("deepseek_v32", deepseek_v32().keys);
  plugin.model<decoder::Family<glm_moe_dsa>>("glm_moe_dsa", glm_moe_dsa().keys);
}

}  // namespace heddle::llama
