// What a trainer asks of the family's models.
#include "family.h"

#include <cstdio>
#include <string>
#include <utility>

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

// The window, and the layers that have it.
std::string text_of_windows(const ModelConfig& config) {
  std::string layers;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
    if (config.window_of(layer) > 0) layers += (layers.empty() ? "" : ",") + std::to_string(layer);
  return layers.empty() ? "" : std::to_string(config.sliding_window) + " in layers " + layers;
}

// What shapes do not tell of the choice of experts and of their activation.
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

// The keys of AutoModel's signature.
std::map<std::string, std::string> signature_of(const ModelConfig& config) {
  std::map<std::string, std::string> out = {
      {"model_type", config.model_type},
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
  const Mixture& mixture = config.mixture;
  if (mixture.experts == 0) return out;
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
  out.model = describe(config);
  out.files = files_of(config);
  out.signature = signature_of(config);
  if (config.mixture.experts > 0 && config.mixture.balance.form == model::BalanceLoss::Form::none)
    for (const char* key : {"router_aux_loss_coef", "aux_loss_alpha"})
      out.idle[key] =
          "no auxiliary loss is computed; router_aux_loss_type: layer, sequence, global or model chooses one";
  out.config_json = [config](const std::string& dtype) {
    ModelConfig stored = config;
    stored.dtype = dtype;
    return to_config_json(stored);
  };
  return decoder::make_spec(std::move(out));
}

}  // namespace heddle::llama
