// Reading what layers with experts add.
#include "read_mixture.h"

#include <algorithm>
#include <string>

#include "heddle/model/config_keys.h"

namespace heddle::llama {

bool Mixture::sparse(int64_t layer) const {
  return experts > 0 && (layer + 1) % sparse_step == 0 &&
         std::find(dense_layers.begin(), dense_layers.end(), layer) == dense_layers.end();
}

bool set_mixture_defaults(ModelConfig& config) {
  const std::string& type = config.model_type;
  Mixture& mixture = config.mixture;
  mixture.balance.coefficient = 0.001;
  if (type == "mixtral") {
    config.intermediate_size = 14336, config.num_key_value_heads = 8;
    config.max_position_embeddings = 131072, config.rms_norm_eps = 1e-5, config.rope_theta = 1e6;
    mixture.experts = 8, mixture.top_k = 2, mixture.normalise = true;
    return true;
  }
  if (type == "olmoe") {
    config.vocab_size = 50304, config.hidden_size = config.intermediate_size = 2048;
    config.num_hidden_layers = config.num_attention_heads = 16, config.max_position_embeddings = 4096;
    config.rms_norm_eps = 1e-5, config.pad_token_id = 1, config.qk_norm = config.qk_norm_of_whole = true;
    mixture.experts = 64, mixture.top_k = 8, mixture.balance.coefficient = 0.01;
    return true;
  }
  if (type != "qwen2_moe" && type != "qwen3_moe") {
    mixture = {};
    return false;
  }
  config.vocab_size = 151936, config.hidden_size = 2048, config.num_hidden_layers = 24;
  config.max_position_embeddings = 32768;
  if (type == "qwen2_moe") {
    config.intermediate_size = mixture.shared_width = 5632;
    config.num_attention_heads = config.num_key_value_heads = 16;
    mixture.experts = 60, mixture.top_k = 4, mixture.width = 1408;
  } else {
    config.intermediate_size = 6144, config.num_key_value_heads = 4, config.qk_norm = true;
    mixture.experts = 128, mixture.top_k = 8, mixture.width = 768;
  }
  return true;
}

namespace {

using Form = model::BalanceLoss::Form;

constexpr int64_t kMostExperts = 65536, kMostElements = int64_t{1} << 60;

double not_negative(const Node& keys, const char* key, double otherwise) {
  const double value = model::real_or(keys, key, otherwise);
  if (!(value >= 0)) model::refuse(*keys.find(key), "expected a number of at least 0");
  return value;
}

void check_refused_of_mixture(const Node& keys, const ModelConfig& config) {
  const Node* window = model::given(keys, "sliding_window");
  if (window != nullptr &&
      (config.model_type == "mixtral" || model::boolean_or(keys, "use_sliding_window", false)))
    model::refuse(*window, "attention with a sliding window of " + window->written() + " is not built",
                  "set sliding_window: null if the sequences are shorter than the window");
  if (const Node* clip = model::given(keys, "clip_qkv"))
    model::refuse(*clip, "clamping queries, keys and values is not built, got " + clip->written(),
                  "set clip_qkv: null");
  if (const Node* noise = model::given(keys, "router_jitter_noise");
      noise != nullptr && noise->as_real() != 0)
    model::refuse(*noise, "router jitter is not built, got " + noise->written(),
                  "set router_jitter_noise: 0");
}

void read_dense_layers(const Node& layers, ModelConfig& config) {
  if (!layers.is_list()) model::refuse(layers, "expected a list of layers, got " + layers.written());
  for (const Node& layer : layers.items()) {
    const int64_t index = layer.as_integer();
    if (index < 0 || index >= config.num_hidden_layers)
      model::refuse(layer, "the model has the layers 0 to " + std::to_string(config.num_hidden_layers - 1) +
                               ", got " + std::to_string(index));
    config.mixture.dense_layers.push_back(index);
  }
}

void read_layers(const Node& keys, ModelConfig& config) {
  config.mixture.sparse_step = model::size_or(keys, "decoder_sparse_step", 1);
  if (const Node* dense = model::given(keys, "mlp_only_layers")) read_dense_layers(*dense, config);
  bool any = false;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
    any = any || config.mixture.sparse(layer);
  if (!any) model::refuse(keys, "decoder_sparse_step and mlp_only_layers leave no layer with experts");
}

void read_losses(const Node& keys, Mixture& mixture) {
  mixture.balance.coefficient = not_negative(keys, "router_aux_loss_coef", mixture.balance.coefficient);
  mixture.z_loss = not_negative(keys, "router_z_loss_coef", 0);
  const std::string form =
      model::text_or(keys, "router_aux_loss_type",
                     model::boolean_or(keys, "output_router_logits", false) ? "model" : "none");
  if (form == "layer")
    mixture.balance.form = Form::layer;
  else if (form == "sequence")
    mixture.balance.form = Form::sequence;
  else if (form == "model")
    mixture.balance.form = Form::model;
  else if (form != "none")
    model::refuse(*keys.find("router_aux_loss_type"),
                  "unknown auxiliary loss '" + form + "'; known: none, layer, sequence, model");
}

void read_router(const Node& keys, Mixture& mixture) {
  mixture.in_turn = model::boolean_or(keys, "fake_balanced_gate", false);
  const std::string dtype = model::text_or(keys, "router_dtype", "");
  mixture.router_in_fp32 = dtype == "float32" || dtype == "fp32";
  if (!dtype.empty() && !mixture.router_in_fp32)
    model::refuse(*keys.find("router_dtype"), "expected float32 or null, got '" + dtype + "'");
}

}  // namespace

void read_mixture(const Node& keys, ModelConfig& config) {
  Mixture& mixture = config.mixture;
  check_refused_of_mixture(keys, config);
  const int64_t other_name = model::size_or(keys, "num_local_experts", mixture.experts, kMostExperts);
  mixture.experts = model::size_or(keys, "num_experts", other_name, kMostExperts);
  mixture.top_k = model::size_or(keys, "num_experts_per_tok", mixture.top_k);
  if (mixture.top_k > mixture.experts)
    model::refuse(keys, "num_experts_per_tok " + std::to_string(mixture.top_k) + " is more than the " +
                            std::to_string(mixture.experts) + " experts");
  const bool own_width = config.model_type == "qwen2_moe" || config.model_type == "qwen3_moe";
  mixture.width =
      own_width ? model::size_or(keys, "moe_intermediate_size", mixture.width) : config.intermediate_size;
  if (config.model_type == "qwen2_moe")
    mixture.shared_width = model::size_or(keys, "shared_expert_intermediate_size", mixture.shared_width);
  if (config.model_type != "mixtral") mixture.normalise = model::boolean_or(keys, "norm_topk_prob", false);
  if (config.hidden_size > kMostElements / (mixture.experts * mixture.width))
    model::refuse(keys, std::to_string(mixture.experts) + " experts of width " +
                            std::to_string(mixture.width) + " have more weights than can be counted");
  if (own_width) read_layers(keys, config);
  read_losses(keys, mixture);
  read_router(keys, mixture);
}

}  // namespace heddle::llama
