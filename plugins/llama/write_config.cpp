// Writing a model's shape as a Hugging Face config.json.
#include <map>
#include <nlohmann/json.hpp>

#include "model_config.h"

namespace heddle::llama {
namespace {

using nlohmann::ordered_json;

ordered_json rope_of(const ModelConfig& config) {
  const RotaryScaling& scaling = config.rope_scaling;
  ordered_json rope{{"rope_type", "default"}, {"rope_theta", config.rope_theta}};
  if (scaling.kind == RotaryScaling::Kind::none) return rope;
  rope["factor"] = scaling.factor;
  rope["rope_type"] = scaling.kind == RotaryScaling::Kind::linear ? "linear" : "llama3";
  if (scaling.kind == RotaryScaling::Kind::linear) return rope;
  rope["low_freq_factor"] = scaling.low_freq_factor;
  rope["high_freq_factor"] = scaling.high_freq_factor;
  rope["original_max_position_embeddings"] = scaling.original_positions;
  return rope;
}

std::string architecture_of(const std::string& model_type) {
  static const std::map<std::string, std::string> kNames = {
      {"llama", "LlamaForCausalLM"},       {"qwen2", "Qwen2ForCausalLM"},
      {"qwen3", "Qwen3ForCausalLM"},       {"mixtral", "MixtralForCausalLM"},
      {"olmoe", "OlmoeForCausalLM"},       {"qwen2_moe", "Qwen2MoeForCausalLM"},
      {"qwen3_moe", "Qwen3MoeForCausalLM"}};
  return kNames.at(model_type);
}

const char* word_of(model::BalanceLoss::Form form) {
  using Form = model::BalanceLoss::Form;
  return form == Form::layer      ? "layer"
         : form == Form::sequence ? "sequence"
         : form == Form::model    ? "model"
                                  : "none";
}

void write_mixture(const ModelConfig& config, ordered_json& out) {
  const Mixture& mixture = config.mixture;
  const std::string& type = config.model_type;
  out[type == "mixtral" ? "num_local_experts" : "num_experts"] = mixture.experts;
  out["num_experts_per_tok"] = mixture.top_k;
  if (type != "mixtral") out["norm_topk_prob"] = mixture.normalise;
  if (type == "qwen2_moe" || type == "qwen3_moe") {
    out["moe_intermediate_size"] = mixture.width;
    out["decoder_sparse_step"] = mixture.sparse_step;
    out["mlp_only_layers"] = mixture.dense_layers;
  }
  if (type == "qwen2_moe") {
    out["shared_expert_intermediate_size"] = mixture.shared_width;
    out["qkv_bias"] = config.qkv_bias;
  }
  out["output_router_logits"] = mixture.balance.form == model::BalanceLoss::Form::model;
  out["router_aux_loss_coef"] = mixture.balance.coefficient;
  out["router_aux_loss_type"] = word_of(mixture.balance.form);
  if (mixture.z_loss != 0) out["router_z_loss_coef"] = mixture.z_loss;
  if (mixture.router_in_fp32) out["router_dtype"] = "float32";
  if (mixture.in_turn) out["fake_balanced_gate"] = true;
}

}  // namespace

// Both spellings of the rotary embedding: transformers before 5 reads rope_theta and rope_scaling.
std::string to_config_json(const ModelConfig& config) {
  const ordered_json rope = rope_of(config);
  ordered_json out{{"architectures", {architecture_of(config.model_type)}},
                   {"model_type", config.model_type},
                   {"vocab_size", config.vocab_size},
                   {"hidden_size", config.hidden_size},
                   {"intermediate_size", config.intermediate_size},
                   {"num_hidden_layers", config.num_hidden_layers},
                   {"num_attention_heads", config.num_attention_heads},
                   {"num_key_value_heads", config.num_key_value_heads},
                   {"head_dim", config.head_dim},
                   {"hidden_act", "silu"},
                   {"max_position_embeddings", config.max_position_embeddings},
                   {"rms_norm_eps", config.rms_norm_eps},
                   {"initializer_range", config.initializer_range},
                   {"tie_word_embeddings", config.tie_word_embeddings},
                   {"attention_dropout", 0.0},
                   {"rope_theta", config.rope_theta},
                   {"rope_scaling", nullptr},
                   {"rope_parameters", rope}};
  if (config.rope_scaling.kind != RotaryScaling::Kind::none) out["rope_scaling"] = rope;
  if (config.model_type != "qwen2" && config.model_type != "qwen2_moe")
    out["attention_bias"] = config.qkv_bias;
  if (config.model_type == "llama") out["mlp_bias"] = config.mlp_bias;
  if (config.model_type.starts_with("qwen")) out["use_sliding_window"] = false;
  if (config.model_type == "mixtral") out["sliding_window"] = nullptr;
  if (config.pad_token_id >= 0) out["pad_token_id"] = config.pad_token_id;
  if (config.model_type == "olmoe" && config.pad_token_id < 0) out["pad_token_id"] = nullptr;
  if (config.mixture.experts > 0) write_mixture(config, out);
  if (config.model_type == "llama") out["bos_token_id"] = out["eos_token_id"] = nullptr;
  if (!config.dtype.empty()) out["dtype"] = out["torch_dtype"] = config.dtype;
  return out.dump(2) + "\n";
}

}  // namespace heddle::llama
