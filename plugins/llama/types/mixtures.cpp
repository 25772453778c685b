// Mixtral, OLMoE, Qwen2-MoE and Qwen3-MoE.
#include <nlohmann/json.hpp>

#include "../config/model_type.h"
#include "../config/read_mixture.h"
#include "../config/window.h"
#include "heddle/decoder/benchmark.h"
#include "heddle/model/config_keys.h"

namespace heddle::llama {
namespace {

using model::boolean_or;

constexpr const char* kQwen = "qwen2_moe qwen3_moe";

void set_mixtral(ModelConfig& config) {
  config.intermediate_size = 14336, config.num_key_value_heads = 8;
  config.max_position_embeddings = 131072, config.rms_norm_eps = 1e-5, config.rope_theta = 1e6;
  config.mixture.experts = 8, config.mixture.top_k = 2, config.mixture.normalise = true;
}

void set_olmoe(ModelConfig& config) {
  config.vocab_size = 50304, config.hidden_size = config.intermediate_size = 2048;
  config.num_hidden_layers = config.num_attention_heads = 16, config.max_position_embeddings = 4096;
  config.rms_norm_eps = 1e-5, config.pad_token_id = 1, config.qk_norm = config.qk_norm_of_whole = true;
  config.mixture.experts = 64, config.mixture.top_k = 8, config.mixture.balance.coefficient = 0.01;
}

void set_qwen_moe(ModelConfig& config) {
  config.vocab_size = 151936, config.hidden_size = 2048, config.num_hidden_layers = 24;
  config.max_position_embeddings = 32768;
}

void set_qwen2_moe(ModelConfig& config) {
  set_qwen_moe(config);
  Mixture& mixture = config.mixture;
  config.intermediate_size = mixture.shared_width = 5632;
  config.num_attention_heads = config.num_key_value_heads = 16, config.qkv_bias = true;
  mixture.experts = 60, mixture.top_k = 4, mixture.width = 1408;
}

void set_qwen3_moe(ModelConfig& config) {
  set_qwen_moe(config);
  config.intermediate_size = 6144, config.num_key_value_heads = 4, config.qk_norm = true;
  config.mixture.experts = 128, config.mixture.top_k = 8, config.mixture.width = 768;
}

void read_mixtral(const Node& keys, ModelConfig& config) {
  read_window_of_all(keys, config);
  config.mixture.jitter = model::real_or(keys, "router_jitter_noise", 0);
  if (!(config.mixture.jitter >= 0 && config.mixture.jitter < 1))
    model::refuse(*keys.find("router_jitter_noise"), "expected a number of at least 0 and below 1, got " +
                                                         keys.find("router_jitter_noise")->written());
  read_experts(keys, config);
  config.mixture.width = config.intermediate_size;
  read_balance(keys, config.mixture);
}

void read_olmoe(const Node& keys, ModelConfig& config) {
  if (const Node* clip = model::given(keys, "clip_qkv"))
    model::refuse(*clip, "clamping queries, keys and values is not built, got " + clip->written(),
                  "set clip_qkv: null");
  if (config.head_dim * config.num_attention_heads != config.hidden_size)
    model::refuse(*keys.find("head_dim"),
                  "head_dim of olmoe must be hidden_size / num_attention_heads (" +
                      std::to_string(config.hidden_size / config.num_attention_heads) + "), got " +
                      std::to_string(config.head_dim) + ", because transformers does not read head_dim",
                  "remove head_dim");
  config.qkv_bias = config.output_bias = boolean_or(keys, "attention_bias", false);
  read_experts(keys, config);
  config.mixture.width = config.intermediate_size;
  config.mixture.normalise = boolean_or(keys, "norm_topk_prob", false);
  read_balance(keys, config.mixture);
}

void read_qwen_moe(const Node& keys, ModelConfig& config) {
  read_experts(keys, config);
  config.mixture.width = model::size_or(keys, "moe_intermediate_size", config.mixture.width);
  config.mixture.normalise = boolean_or(keys, "norm_topk_prob", false);
  read_sparse_layers(keys, config);
  read_balance(keys, config.mixture);
}

// Windows in every second layer before max_window_layers.
bool slides_in_turn(int64_t layer, const Node& keys) {
  return layer % 2 == 0 && layer < model::integer_or(keys, "max_window_layers", 28);
}

void read_qwen2_moe(const Node& keys, ModelConfig& config) {
  read_used_windows(keys, config, slides_in_turn);
  config.qkv_bias = boolean_or(keys, "qkv_bias", true);
  config.mixture.shared_width =
      model::size_or(keys, "shared_expert_intermediate_size", config.mixture.shared_width);
  read_qwen_moe(keys, config);
}

// The window applies to all layers.
void read_qwen3_moe(const Node& keys, ModelConfig& config) {
  read_used_windows(keys, config, [](int64_t, const Node&) { return true; });
  config.qkv_bias = config.output_bias = boolean_or(keys, "attention_bias", false);
  read_qwen_moe(keys, config);
}

void write_mixtral(const ModelConfig& config, nlohmann::ordered_json& out) {
  write_window(config, out);
  out["num_local_experts"] = config.mixture.experts;
  if (config.mixture.jitter != 0) out["router_jitter_noise"] = config.mixture.jitter;
  write_balance(config.mixture, out);
}

void write_olmoe(const ModelConfig& config, nlohmann::ordered_json& out) {
  if (config.pad_token_id < 0) out["pad_token_id"] = nullptr;
  out["attention_bias"] = config.qkv_bias;
  out["num_experts"] = config.mixture.experts;
  out["norm_topk_prob"] = config.mixture.normalise;
  write_balance(config.mixture, out);
}

void write_qwen_moe(const ModelConfig& config, nlohmann::ordered_json& out) {
  const Mixture& mixture = config.mixture;
  out["use_sliding_window"] = config.sliding_window > 0;
  if (config.sliding_window > 0) write_windows(config, out);
  out["num_experts"] = mixture.experts;
  out["norm_topk_prob"] = mixture.normalise;
  out["moe_intermediate_size"] = mixture.width;
  out["decoder_sparse_step"] = mixture.sparse_step;
  out["mlp_only_layers"] = mixture.dense_layers;
  write_balance(mixture, out);
}

void write_qwen2_moe(const ModelConfig& config, nlohmann::ordered_json& out) {
  write_qwen_moe(config, out);
  out["shared_expert_intermediate_size"] = config.mixture.shared_width;
  out["qkv_bias"] = config.qkv_bias;
}

void write_qwen3_moe(const ModelConfig& config, nlohmann::ordered_json& out) {
  write_qwen_moe(config, out);
  out["attention_bias"] = config.qkv_bias;
}

double mixtral_benchmark(const BenchmarkSizes& m) {
  return decoder::llama_benchmark(m) + m.G * m.S * m.layers * m.h * 18 * m.f * (m.chosen(2) - 1);
}

std::vector<Key> keys_of_mixtures() {
  std::vector<Key> keys = {
      {{"moe_intermediate_size", "int", "768", "1..2^28",
        "Width of an expert. Qwen2-MoE: 1408. Other types use intermediate_size.", ""},
       kQwen},
      {{"shared_expert_intermediate_size", "int", "5632", "1..2^28", "Width of the shared expert.", ""},
       "qwen2_moe"},
      {{"norm_topk_prob", "bool", "false", "", "Normalize the routing weights of a token to sum to 1.", ""},
       "olmoe qwen2_moe qwen3_moe"},
      {{"decoder_sparse_step", "int", "1", "1..2^28", "Every Nth layer has experts.", ""}, kQwen},
      {{"mlp_only_layers", "list or null", "null", "layers", "Layers without experts.", ""}, kQwen},
      {{"attention_bias", "bool", "false", "", "Whether q, k, v and o have biases.", ""}, "olmoe qwen3_moe"},
      {{"qkv_bias", "bool", "true", "", "Whether q, k and v have biases.", ""}, "qwen2_moe"},
      {{"clip_qkv", "float or null", "null", "null", "Clamping of q, k and v is not supported.", ""},
       "olmoe"},
      {{"router_jitter_noise", "float", "0.0", "0 to below 1",
        "Range of the router jitter: in training the inputs of router and experts are multiplied by factors "
        "in [1 - value, 1 + value].",
        ""},
       "mixtral"},
      {{"sliding_window", "int or null", "null", "1..2^28",
        "Sliding-window size in tokens, including the current token.", ""},
       "mixtral"}};
  add_window_keys(keys, kQwen);
  add_expert_keys(keys, "8", {"num_experts", "num_local_experts"});
  add_balance_keys(keys);
  return keys;
}

}  // namespace

const ModelGroup& mixture_models() {
  static const ModelGroup kGroup = {
      {{"mixtral", "MixtralForCausalLM", set_mixtral, read_mixtral, write_mixtral,
        decoder::Files().experts({"block_sparse_moe", "w1", "w3", "w2"}), false, mixtral_benchmark},
       {"olmoe", "OlmoeForCausalLM", set_olmoe, read_olmoe, write_olmoe},
       {"qwen2_moe", "Qwen2MoeForCausalLM", set_qwen2_moe, read_qwen2_moe, write_qwen2_moe},
       {"qwen3_moe",
        "Qwen3MoeForCausalLM",
        set_qwen3_moe,
        read_qwen3_moe,
        write_qwen3_moe,
        {},
        false,
        decoder::grouped_benchmark,
        decoder::automodel_loss()}},
      keys_of_mixtures()};
  return kGroup;
}

}  // namespace heddle::llama
