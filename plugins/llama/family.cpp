// What a trainer asks of the family's models.
#include "family.h"

#include <cstdio>
#include <string>
#include <utility>

#include "config/model_config.h"
#include "config/stored_names.h"
#include "layers/make_units.h"

namespace heddle::llama {
namespace {

constexpr const char* kEmbedding = "model.embed_tokens.weight";
constexpr const char* kHead = "lm_head.weight";

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

class Spec : public ModelSpec {
 public:
  explicit Spec(ModelConfig config) : config_(std::move(config)) {}

  ModelFacts facts() const override {
    return {config_.model_type, config_.vocab_size, config_.max_position_embeddings, config_.dtype};
  }

  Units make_units(const at::TensorOptions& options) const override {
    return llama::make_units(config_, options);
  }

  // The keys of AutoModel's signature.
  std::map<std::string, std::string> signature() const override {
    std::map<std::string, std::string> out = {
        {"model_type", config_.model_type},
        {"hidden_size", std::to_string(config_.hidden_size)},
        {"num_hidden_layers", std::to_string(config_.num_hidden_layers)},
        {"num_attention_heads", std::to_string(config_.num_attention_heads)},
        {"num_key_value_heads", std::to_string(config_.num_key_value_heads)},
        {"intermediate_size", std::to_string(config_.intermediate_size)},
        {"vocab_size", std::to_string(config_.vocab_size)},
        {"tie_word_embeddings", config_.tie_word_embeddings ? "true" : "false"},
        {"rope_theta", number(config_.rope_theta)},
        {"rope_scaling", text_of(config_.rope_scaling)}};
    if (config_.partial_rotary_factor != 1)
      out["partial_rotary_factor"] = number(config_.partial_rotary_factor);
    if (const std::string windows = text_of_windows(config_); !windows.empty())
      out["sliding_window"] = windows;
    const Mixture& mixture = config_.mixture;
    if (mixture.experts == 0) return out;
    out["num_experts"] = std::to_string(mixture.experts);
    out["num_experts_per_tok"] = std::to_string(mixture.top_k);
    out["moe_intermediate_size"] = std::to_string(mixture.width);
    out["router"] = text_of_router(mixture);
    return out;
  }

  std::string config_json(const std::string& dtype) const override {
    ModelConfig config = config_;
    config.dtype = dtype;
    return to_config_json(config);
  }

  // AutoModel's formula: six operations for each weight of a product (2 forward, 4 backward), and attention
  // over the half of the positions that causal masking leaves, or those of the layer's window. Norms, the
  // rotary embedding and the embedding are not counted.
  double flops_per_token(int64_t sequence) const override {
    const auto width = static_cast<double>(config_.hidden_size);
    double layers = 0;
    for (int64_t layer = 0; layer < config_.num_hidden_layers; ++layer)
      layers += attention(seen(layer, sequence)) + static_cast<double>(weights_after_attention(layer));
    return 6 * (layers + width * static_cast<double>(config_.vocab_size));
  }

  StoredParts stored(const std::string& parameter, std::span<const int64_t> shape) const override {
    return stored_parts(config_, parameter, shape);
  }

  // A tied head is the embedding; files may have either.
  std::vector<std::string> other_names(const std::string& tensor) const override {
    if (tensor == kEmbedding && config_.tie_word_embeddings) return {kHead};
    return {};
  }

 private:
  // Tokens that one sees in a layer, the mean over a sequence.
  double seen(int64_t layer, int64_t sequence) const {
    const auto length = static_cast<double>(sequence), window = static_cast<double>(config_.window_of(layer));
    return window == 0 || window >= length ? length / 2 : window - window * window / (2 * length);
  }
  // Of one layer: weights of its products, and a multiplication for each element of q k^T that is seen and of
  // its product with v.
  double attention(double seen) const {
    const auto width = static_cast<double>(config_.hidden_size);
    const auto heads = static_cast<double>(config_.num_attention_heads);
    const Latent& latent = config_.latent;
    if (latent.rank == 0) {
      const auto dim = static_cast<double>(config_.head_dim);
      const double q = heads * dim, kv = static_cast<double>(config_.num_key_value_heads) * dim;
      return width * (2 * q + 2 * kv) + 2 * q * seen;
    }
    const auto rank = static_cast<double>(latent.rank), query_rank = static_cast<double>(latent.query_rank);
    const auto rotary = static_cast<double>(latent.rotary);
    const auto key = static_cast<double>(latent.plain + latent.rotary);
    const auto value = static_cast<double>(latent.value), plain = static_cast<double>(latent.plain);
    const double queries = query_rank > 0 ? query_rank * (width + heads * key) : width * heads * key;
    const double keys = width * (rank + rotary) + rank * heads * (plain + value);
    return queries + keys + heads * value * width + heads * (key + value) * seen;
  }
  // Weights that a token meets: those of its experts, not of all.
  int64_t weights_after_attention(int64_t layer) const {
    const Mixture& mixture = config_.mixture;
    if (!mixture.sparse(layer)) return 3 * config_.hidden_size * config_.intermediate_size;
    const int64_t shared =
        3 * mixture.shared_width + (mixture.shared_width > 0 && mixture.shared_gate ? 1 : 0);
    return config_.hidden_size * (mixture.experts + 3 * mixture.top_k * mixture.width + shared);
  }

  ModelConfig config_;
};

}  // namespace

std::unique_ptr<ModelSpec> Llama::read(const Node& keys, UnknownKeys unknown) const {
  return std::make_unique<Spec>(read_model_config(keys, unknown));
}

}  // namespace heddle::llama
