// Facts and signatures of the family's models.
#include "family.h"

#include <cstdio>
#include <map>
#include <string>
#include <utility>

#include "config/model_type.h"
#include "describe.h"
#include "heddle/decoder/family.h"

namespace heddle::llama {
namespace {

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

std::string text_of(const RotaryScaling& scaling) {
  switch (scaling.kind) {
    case RotaryScaling::Kind::none:
      return "none";
    case RotaryScaling::Kind::linear:
      return "linear " + number(scaling.factor);
    case RotaryScaling::Kind::llama3:
      return "llama3 " + number(scaling.factor) + " " + number(scaling.low_freq_factor) + " " +
             number(scaling.high_freq_factor) + " " + std::to_string(scaling.original_positions);
    case RotaryScaling::Kind::yarn:
      return "yarn " + number(scaling.factor) + " " + number(scaling.beta_fast) + " " +
             number(scaling.beta_slow) + " " + std::to_string(scaling.original_positions) + " " +
             number(scaling.attention_factor) + " " + number(scaling.mscale) + " " +
             number(scaling.mscale_all_dim) + (scaling.truncate ? " truncated" : "");
  }
  return "";
}

// Returns the window size and the layers that have it.
std::string text_of_windows(const ModelConfig& config) {
  std::string layers;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
    if (config.window_of(layer) > 0) layers += (layers.empty() ? "" : ",") + std::to_string(layer);
  return layers.empty() ? "" : std::to_string(config.sliding_window) + " in layers " + layers;
}

// Describes the expert selection and activation, which do not follow from shapes.
std::string text_of_router(const Mixture& mixture) {
  const auto part = [](const char* name, double value) {
    return std::string(", ") + name + " " + number(value);
  };
  std::string out = "score " + std::to_string(static_cast<int>(mixture.score));
  out += part("groups", static_cast<double>(mixture.groups));
  out += part("chosen", static_cast<double>(mixture.top_groups));
  out += part("scale", mixture.scale);
  if (mixture.normalise) out += ", normalised";
  if (mixture.activation.kind == model::ExpertActivation::Kind::clamped_swiglu)
    out += part("alpha", mixture.activation.alpha) + part("limit", mixture.activation.limit);
  return out;
}

using Signature = std::map<std::string, std::string>;

// Returns the configuration of a type without keys. head_dim is 0 if it follows from the hidden size.
ModelConfig defaults_of(const std::string& model_type) {
  ModelConfig out;
  out.head_dim = 0;
  type_of(model_type).set_defaults(out);
  return out;
}

// Adds a value that differs from the type's default. Models with default values keep the signature that
// checkpoints of older versions recorded.
void add_other(Signature& out, const char* key, int64_t value, int64_t otherwise) {
  if (value != otherwise) out[key] = std::to_string(value);
}
void add_other(Signature& out, const char* key, bool value, bool otherwise) {
  if (value != otherwise) out[key] = value ? "true" : "false";
}

// Layers that reuse a selection have no indexer parameters.
void add_indexer(const Indexer& indexer, const Indexer& usual, Signature& out) {
  add_other(out, "index_topk", indexer.top_k, usual.top_k);
  add_other(out, "index_n_heads", indexer.heads, usual.heads);
  add_other(out, "index_head_dim", indexer.head_dim, usual.head_dim);
  add_other(out, "indexer_rope_interleave", indexer.interleaved, usual.interleaved);
  std::string shared;
  for (size_t layer = 0; layer < indexer.shared.size(); ++layer)
    if (indexer.shared[layer]) shared += (shared.empty() ? "" : ",") + std::to_string(layer);
  if (!shared.empty()) out["layers_with_shared_indexers"] = shared;
}

void add_attention(const ModelConfig& config, const ModelConfig& plain, Signature& out) {
  add_other(out, "attention_bias", config.qkv_bias, plain.qkv_bias);
  add_other(out, "output_bias", config.output_bias, plain.output_bias);
  add_other(out, "mlp_bias", config.mlp_bias, plain.mlp_bias);
  add_other(out, "use_qk_norm", config.qk_norm, plain.qk_norm);
  const Latent &latent = config.latent, &usual = plain.latent;
  if (latent.rank == 0) {
    const int64_t follows = config.hidden_size / config.num_attention_heads;
    return add_other(out, "head_dim", config.head_dim, plain.head_dim == 0 ? follows : plain.head_dim);
  }
  add_other(out, "kv_lora_rank", latent.rank, usual.rank);
  add_other(out, "q_lora_rank", latent.query_rank, usual.query_rank);
  add_other(out, "qk_nope_head_dim", latent.plain, usual.plain);
  add_other(out, "qk_rope_head_dim", latent.rotary, usual.rotary);
  add_other(out, "v_head_dim", latent.value, usual.value);
  add_indexer(latent.indexer, usual.indexer, out);
}

// Adds the layers with experts, the shared expert and the correction bias.
void add_experts(const ModelConfig& config, const ModelConfig& plain, Signature& out) {
  const Mixture &mixture = config.mixture, &usual = plain.mixture;
  if (mixture.shared_gate)
    add_other(out, "shared_expert_intermediate_size", mixture.shared_width, usual.shared_width);
  else  // types differ in the default number
    add_other(out, "n_shared_experts", mixture.shared_width / mixture.width, usual.shared_width);
  add_other(out, "correction_bias", mixture.correction, usual.correction);
  std::string dense, usually;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    if (!mixture.sparse(layer)) dense += (dense.empty() ? "" : ",") + std::to_string(layer);
    if (!usual.sparse(layer)) usually += (usually.empty() ? "" : ",") + std::to_string(layer);
  }
  if (dense != usually) out["layers_without_experts"] = dense.empty() ? "none" : dense;
}

// Returns the keys of AutoModel's signature, and other keys that affect parameters.
Signature signature_of(const ModelConfig& config) {
  Signature out = {{"model_type", config.model_type},
                   {"hidden_size", std::to_string(config.hidden_size)},
                   {"num_hidden_layers", std::to_string(config.num_hidden_layers)},
                   {"num_attention_heads", std::to_string(config.num_attention_heads)},
                   {"num_key_value_heads", std::to_string(config.num_key_value_heads)},
                   {"intermediate_size", std::to_string(config.intermediate_size)},
                   {"vocab_size", std::to_string(config.vocab_size)},
                   {"tie_word_embeddings", config.tie_word_embeddings ? "true" : "false"},
                   {"rope_theta", number(config.rope_theta)},
                   {"rope_scaling", text_of(config.rope_scaling)}};
  if (config.partial_rotary_factor != 1) out["partial_rotary_factor"] = number(config.partial_rotary_factor);
  if (const std::string windows = text_of_windows(config); !windows.empty()) out["sliding_window"] = windows;
  const ModelConfig plain = defaults_of(config.model_type);
  add_attention(config, plain, out);
  const Mixture& mixture = config.mixture;
  if (mixture.experts == 0) return out;
  add_experts(config, plain, out);
  out["num_experts"] = std::to_string(mixture.experts);
  out["num_experts_per_tok"] = std::to_string(mixture.top_k);
  out["moe_intermediate_size"] = std::to_string(mixture.width);
  out["router"] = text_of_router(mixture);
  return out;
}

}  // namespace

std::unique_ptr<ModelSpec> Llama::read(const Node& keys, UnknownKeys unknown) const {
  const ModelConfig config = read_model_config(keys, unknown);
  decoder::ReadModel out;
  out.facts = {config.model_type, config.vocab_size, config.max_position_embeddings, config.dtype};
  out.facts.benchmark = type_of(config.model_type).benchmark;
  out.model = describe(config);
  out.files = files_of(config);
  out.signature = signature_of(config);
  if (config.mixture.experts > 0 && config.mixture.balance.form == model::BalanceLoss::Form::none)
    for (const char* key : {"router_aux_loss_coef", "aux_loss_alpha"})
      out.idle[key] =
          "no auxiliary loss is computed; set router_aux_loss_type to layer, sequence, global or model";
  out.config_json = [config](const std::string& dtype) {
    ModelConfig stored = config;
    stored.dtype = dtype;
    return to_config_json(stored);
  };
  return decoder::make_spec(std::move(out));
}

std::vector<Node::Entry> Llama::automodel_keys(const std::string& model_type) const {
  for (const std::string& known : type_names())
    if (model_type == known) return type_of(known).automodel_keys;
  return {};
}

}  // namespace heddle::llama
