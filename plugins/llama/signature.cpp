// Signatures of models. Values that equal the family's defaults are absent, as in checkpoints of versions
// that did not read their keys.
#include <cstdio>
#include <variant>

#include "keys.h"

namespace heddle::llama {
namespace {

using Signature = std::map<std::string, std::string>;

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

// Returns the numbers of the first `count` layers for which has(layer) returns true.
template <class Has>
std::string layers_with(const decoder::Model& model, size_t count, Has has) {
  std::string out;
  for (size_t i = 0; i < count; ++i)
    if (has(model.layers[i])) out += (out.empty() ? "" : ",") + std::to_string(i);
  return out;
}

// Returns the first layer's part of this type; null: the layers have another type.
template <class Part>
const Part* first_of(const decoder::Model& model) {
  for (const decoder::Layer& layer : model.layers) {
    const Part* found = nullptr;
    if constexpr (std::is_same_v<Part, decoder::Mixture> || std::is_same_v<Part, decoder::Mlp>)
      found = std::get_if<Part>(&layer.feed_forward);
    else
      found = std::get_if<Part>(&layer.mixer);
    if (found != nullptr) return found;
  }
  return nullptr;
}

template <class Value>
void add_other(Signature& out, const char* key, Value value, Value usual) {
  if (value == usual) return;
  if constexpr (std::is_same_v<Value, bool>)
    out[key] = value ? "true" : "false";
  else
    out[key] = std::to_string(value);
}

// Adds the window size and the layers that have it.
void add_windows(const decoder::Model& model, Signature& out) {
  const auto window_of = [](const decoder::Layer& layer) -> int64_t {
    const auto* attention = std::get_if<decoder::Attention>(&layer.mixer);
    return attention == nullptr ? 0 : attention->options.window;
  };
  for (const decoder::Layer& layer : model.layers)
    if (const int64_t window = window_of(layer); window > 0) {
      const std::string layers = layers_with(model, model.layers.size(),
                                             [&](const decoder::Layer& one) { return window_of(one) > 0; });
      out["sliding_window"] = std::to_string(window) + " in layers " + layers;
      return;
    }
}

void add_attention(const decoder::Attention& attention, const Signed& of, const Signed& usual,
                   Signature& out) {
  const auto* plain = first_of<decoder::Attention>(usual.model);
  using HeadNorm = decoder::Attention::HeadNorm;
  add_other(out, "attention_bias", attention.qkv_bias, plain->qkv_bias);
  add_other(out, "output_bias", attention.output_bias, plain->output_bias);
  add_other(out, "use_qk_norm", attention.head_norm != HeadNorm::none, plain->head_norm != HeadNorm::none);
  const int64_t follows = of.keys.hidden_size / of.keys.num_attention_heads;
  add_other(out, "head_dim", attention.head_dim, usual.keys.head_dim.value_or(follows));
}

// Layers that reuse a selection have no indexer parameters.
void add_indexer(const decoder::Model& model, const decoder::Indexer& indexer, const decoder::Indexer& plain,
                 Signature& out) {
  add_other(out, "index_topk", indexer.top_k, plain.top_k);
  add_other(out, "index_n_heads", indexer.heads, plain.heads);
  add_other(out, "index_head_dim", indexer.head_dim, plain.head_dim);
  add_other(out, "indexer_rope_interleave", indexer.interleaved, plain.interleaved);
  const std::string shared = layers_with(model, model.layers.size(), [](const decoder::Layer& layer) {
    return std::get<decoder::Latent>(layer.mixer).indexer->of_layer_before;
  });
  if (!shared.empty()) out["layers_with_shared_indexers"] = shared;
}

void add_latent(const decoder::Latent& latent, const Signed& of, const Signed& usual, Signature& out) {
  const auto* plain = first_of<decoder::Latent>(usual.model);
  add_other(out, "attention_bias", latent.bias, plain->bias);
  add_other(out, "output_bias", latent.bias, plain->bias);
  add_other(out, "kv_lora_rank", latent.rank, plain->rank);
  add_other(out, "q_lora_rank", latent.query_rank, plain->query_rank);
  add_other(out, "qk_nope_head_dim", latent.plain, plain->plain);
  add_other(out, "qk_rope_head_dim", latent.rotary, plain->rotary);
  add_other(out, "v_head_dim", latent.value, plain->value);
  if (latent.indexer) add_indexer(of.model, *latent.indexer, *plain->indexer, out);
}

// Describes the expert selection and activation, which do not follow from shapes.
std::string text_of_router(const decoder::Mixture& mixture) {
  const auto part = [](const char* name, double value) {
    return std::string(", ") + name + " " + number(value);
  };
  const model::RouterRule& rule = mixture.router.rule;
  std::string out = "score " + std::to_string(static_cast<int>(rule.score));
  out += part("groups", static_cast<double>(rule.groups));
  out += part("chosen", static_cast<double>(rule.top_groups));
  out += part("scale", rule.scale);
  if (rule.normalise) out += ", normalised";
  if (mixture.activation.kind == model::ExpertActivation::Kind::clamped_swiglu)
    out += part("alpha", mixture.activation.alpha) + part("limit", mixture.activation.limit);
  return out;
}

// Adds the layers with experts, the shared expert and the router.
void add_experts(const decoder::Mixture& mixture, const Signed& of, const Signed& usual, Signature& out) {
  const auto* plain = first_of<decoder::Mixture>(usual.model);
  if (mixture.shared_gate)
    add_other(out, "shared_expert_intermediate_size", mixture.shared_width, plain->shared_width);
  else  // families differ in the default number
    add_other(out, "n_shared_experts", mixture.shared_width / mixture.width,
              plain->shared_width / plain->width);
  add_other(out, "correction_bias", mixture.router.correction, plain->router.correction);
  const auto is_dense = [](const decoder::Layer& layer) {
    return std::holds_alternative<decoder::Mlp>(layer.feed_forward);
  };
  const size_t layers = of.model.layers.size();
  const std::string dense = layers_with(of.model, layers, is_dense);
  if (dense != layers_with(usual.model, layers, is_dense))
    out["layers_without_experts"] = dense.empty() ? "none" : dense;
  out["num_experts"] = std::to_string(mixture.router.experts);
  out["num_experts_per_tok"] = std::to_string(mixture.router.rule.top_k);
  out["moe_intermediate_size"] = std::to_string(mixture.width);
  out["router"] = text_of_router(mixture);
}

}  // namespace

Signature signature_of(const std::string& model_type, const Signed& of, const Signed& usual) {
  const decoder::CommonKeys& keys = of.keys;
  Signature out = {{"model_type", model_type},
                   {"hidden_size", std::to_string(keys.hidden_size)},
                   {"num_hidden_layers", std::to_string(keys.num_hidden_layers)},
                   {"num_attention_heads", std::to_string(keys.num_attention_heads)},
                   {"num_key_value_heads", std::to_string(*keys.num_key_value_heads)},
                   {"intermediate_size", std::to_string(keys.intermediate_size)},
                   {"vocab_size", std::to_string(keys.vocab_size)},
                   {"tie_word_embeddings", keys.tie_word_embeddings ? "true" : "false"},
                   {"rope_theta", number(keys.rotary.theta)},
                   {"rope_scaling", text_of(keys.rotary.scaling)}};
  if (keys.rotary.part != 1) out["partial_rotary_factor"] = number(keys.rotary.part);
  add_windows(of.model, out);
  if (const auto* attention = first_of<decoder::Attention>(of.model))
    add_attention(*attention, of, usual, out);
  if (const auto* latent = first_of<decoder::Latent>(of.model)) add_latent(*latent, of, usual, out);
  const auto *mlp = first_of<decoder::Mlp>(of.model), *plain = first_of<decoder::Mlp>(usual.model);
  if (mlp != nullptr && plain != nullptr) add_other(out, "mlp_bias", mlp->bias, plain->bias);
  if (const auto* mixture = first_of<decoder::Mixture>(of.model)) add_experts(*mixture, of, usual, out);
  return out;
}

}  // namespace heddle::llama
