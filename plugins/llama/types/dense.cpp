// Llama, Qwen2 and Qwen3.
#include <nlohmann/json.hpp>

#include "../config/keys.h"
#include "../config/model_type.h"
#include "../config/window.h"
#include "heddle/decoder/benchmark.h"
#include "heddle/model/config_keys.h"

namespace heddle::llama {
namespace {

using model::boolean_or;

void set_llama(ModelConfig&) {}

void set_qwen(ModelConfig& config) {
  config.vocab_size = 151936;
  config.intermediate_size = 22016;
  config.max_position_embeddings = 32768;
  config.num_key_value_heads = 32;
}

void set_qwen2(ModelConfig& config) {
  set_qwen(config);
  config.qkv_bias = true;
}

void set_qwen3(ModelConfig& config) {
  set_qwen(config);
  config.head_dim = 128;
  config.qk_norm = true;
}

void read_llama(const Node& keys, ModelConfig& config) {
  config.qkv_bias = config.output_bias = boolean_or(keys, "attention_bias", false);
  config.mlp_bias = boolean_or(keys, "mlp_bias", false);
  check_heads_divide(keys, config);
  if (config.initializer_range > 1)
    model::refuse(*keys.find("initializer_range"),
                  "transformers requires an initializer_range from 0 to 1, got " +
                      keys.find("initializer_range")->written());
}

void read_qwen3(const Node& keys, ModelConfig& config) {
  config.qkv_bias = config.output_bias = boolean_or(keys, "attention_bias", false);
  read_used_windows(keys, config, slides_at_the_end);
}

void write_llama(const ModelConfig& config, nlohmann::ordered_json& out) {
  out["attention_bias"] = config.qkv_bias;
  out["mlp_bias"] = config.mlp_bias;
  out["bos_token_id"] = out["eos_token_id"] = nullptr;
}

void write_qwen2(const ModelConfig& config, nlohmann::ordered_json& out) {
  out["use_sliding_window"] = config.sliding_window > 0;
  if (config.sliding_window > 0) write_windows(config, out);
}

void write_qwen3(const ModelConfig& config, nlohmann::ordered_json& out) {
  out["attention_bias"] = config.qkv_bias;
  write_qwen2(config, out);
}

std::vector<Key> dense_keys() {
  std::vector<Key> keys = {
      {{"attention_bias", "bool", "false", "", "Whether q, k, v and o have biases.", ""}, "llama qwen3"},
      {{"mlp_bias", "bool", "false", "", "Whether the MLP has biases.", ""}, "llama"}};
  add_window_keys(keys, "qwen2 qwen3");
  return keys;
}

}  // namespace

const ModelGroup& dense_models() {
  static const ModelGroup kGroup = {
      {{"llama", "LlamaForCausalLM", set_llama, read_llama, write_llama, {}, false, decoder::llama_benchmark},
       {"qwen2",
        "Qwen2ForCausalLM",
        set_qwen2,
        [](const Node& keys, ModelConfig& config) { read_used_windows(keys, config, slides_at_the_end); },
        write_qwen2,
        {},
        false,
        decoder::grouped_benchmark},
       {"qwen3",
        "Qwen3ForCausalLM",
        set_qwen3,
        read_qwen3,
        write_qwen3,
        {},
        false,
        decoder::grouped_benchmark}},
      dense_keys()};
  return kGroup;
}

}  // namespace heddle::llama
