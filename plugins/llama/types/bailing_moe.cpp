// Ling 2.0 (BailingMoeV2): one tensor for q, k and v in files, partial rotation, a sigmoid router.
#include <array>
#include <nlohmann/json.hpp>

#include "../config/read_mixture.h"
#include "heddle/model/config_keys.h"
#include "sigmoid.h"

namespace heddle::llama {
namespace {

void set_bailing_moe(ModelConfig& config) {
  config.vocab_size = 157184, config.hidden_size = 2048, config.intermediate_size = 5120;
  config.num_hidden_layers = 20, config.num_attention_heads = 16, config.num_key_value_heads = 4;
  config.head_dim = 128, config.max_position_embeddings = 32768, config.rope_theta = 600000;
  config.partial_rotary_factor = 0.5, config.qk_norm = true;
  config.pad_token_id = 156892;
  Mixture& mixture = config.mixture;
  set_sigmoid_router(mixture);
  mixture.router_in_fp32 = true;
  mixture.experts = 256, mixture.top_k = 8, mixture.width = 512, mixture.first_sparse = 1;
  mixture.groups = 8, mixture.top_groups = 4;
  mixture.shared_width = 1;  // in experts, until their width is known
}

void expect_real(const Node& keys, const char* key, double only) {
  const Node* node = model::given(keys, key);
  if (node != nullptr && node->as_real() != only)
    model::refuse(*node, "bailing_moe is built with " + std::string(key) + " " + std::to_string(only) +
                             ", got " + node->written());
}

// Refuses Ling 1, which has the same model_type but a different router.
void check_architecture(const Node& keys) {
  const Node* names = model::given(keys, "architectures");
  if (names == nullptr || !names->is_list()) return;
  for (const Node& name : names->items())
    if (name.as_text() == "BailingMoeV2ForCausalLM") return;
  model::refuse(*names, "bailing_moe is built as BailingMoeV2ForCausalLM (Ling 2), got " + names->written());
}

void read_bailing_moe(const Node& keys, ModelConfig& config) {
  check_architecture(keys);
  Mixture& mixture = config.mixture;
  if (config.pad_token_id >= config.vocab_size) config.pad_token_id = -1;
  config.qkv_bias = model::boolean_or(keys, "use_qkv_bias", false);
  config.output_bias = model::boolean_or(keys, "use_bias", false);
  config.qk_norm = model::boolean_or(keys, "use_qk_norm", true);
  expect_text(keys, "score_function", "sigmoid", config.model_type);
  expect_real(keys, "embedding_dropout", 0);
  expect_real(keys, "output_dropout", 0);
  if (!model::boolean_or(keys, "norm_topk_prob", true))
    model::refuse(*keys.find("norm_topk_prob"), "the router of bailing_moe always normalizes its weights",
                  "set norm_topk_prob: true");
  mixture.correction = model::boolean_or(keys, "moe_router_enable_expert_bias", true);
  read_experts(keys, config);
  mixture.width = model::size_or(keys, "moe_intermediate_size", mixture.width);
  mixture.shared_width = mixture.width * count_or(keys, "num_shared_experts", 1, 65536);
  mixture.scale = model::real_or(keys, "routed_scaling_factor", 1);
  mixture.first_sparse = count_or(keys, "first_k_dense_replace", mixture.first_sparse, model::kMostLayers);
  check_layers(keys, config, "first_k_dense_replace and num_hidden_layers");
  read_groups(keys, mixture, "num_experts");
  read_sigmoid_router(keys, mixture);
  if (!mixture.correction && mixture.correction_rate != 0)
    model::refuse(
        *keys.find("gate_bias_update_factor"),
        "gate_bias_update_factor needs a correction bias, but moe_router_enable_expert_bias is false",
        "remove one of the two keys");
}

void write_bailing_moe(const ModelConfig& config, nlohmann::ordered_json& out) {
  const Mixture& mixture = config.mixture;
  if (config.pad_token_id < 0) out["pad_token_id"] = nullptr;
  out["use_qkv_bias"] = config.qkv_bias;
  out["use_bias"] = config.output_bias;
  out["use_qk_norm"] = config.qk_norm;
  out["score_function"] = "sigmoid";
  out["norm_topk_prob"] = true;
  out["moe_router_enable_expert_bias"] = mixture.correction;
  out["num_experts"] = mixture.experts;
  out["moe_intermediate_size"] = mixture.width;
  out["num_shared_experts"] = mixture.shared_width / mixture.width;
  out["routed_scaling_factor"] = mixture.scale;
  out["first_k_dense_replace"] = mixture.first_sparse;
  out["n_group"] = mixture.groups;
  out["topk_group"] = mixture.top_groups;
  out["num_nextn_predict_layers"] = 0;
  write_sigmoid_router(mixture, out);
}

// q, k and v are rows of one tensor, in this order.
decoder::Files bailing_files() {
  const std::string tensor = "attention.query_key_value";
  decoder::Files files;
  files.experts({.correction = "gate.expert_bias"})
      .joined(tensor, {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"})
      .renamed("model.embed_tokens", "model.word_embeddings")
      .renamed("self_attn.o_proj", "attention.dense")
      .renamed("self_attn.q_norm", "attention.query_layernorm")
      .renamed("self_attn.k_norm", "attention.key_layernorm");
  return files;
}

}  // namespace

void add_bailing_moe_keys(std::vector<Key>& keys) {
  const std::array<FieldInfo, 7> table = {
      {{"use_qkv_bias", "bool", "false", "", "Whether q, k and v have biases.", ""},
       {"use_bias", "bool", "false", "", "Whether o has a bias.", ""},
       {"num_shared_experts", "int or null", "1", "0..65536",
        "Number of shared experts, computed as one expert of that multiple of the width.", ""},
       {"score_function", "str", "sigmoid", "sigmoid", "Function that converts router logits to scores.", ""},
       {"moe_router_enable_expert_bias", "bool", "true", "",
        "Add a correction bias to the scores that select experts.", ""},
       {"embedding_dropout", "float", "0.0", "0.0", "Only 0.0 is supported.", ""},
       {"output_dropout", "float", "0.0", "0.0", "Only 0.0 is supported.", ""}}};
  for (const FieldInfo& info : table) keys.push_back({info, "bailing_moe"});
}

ModelType bailing_moe_type() {
  ModelType type{"bailing_moe", "BailingMoeV2ForCausalLM", set_bailing_moe, read_bailing_moe,
                 write_bailing_moe};
  type.files = bailing_files();
  type.partial_rotary = true;
  return type;
}

}  // namespace heddle::llama
